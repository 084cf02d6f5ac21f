use super::*;

/// Three blocks of 300 tokens: five tiles of keys, the last one partial.
const PARTS: LayoutParts<'static> = LayoutParts {
    tile_starts: &[0, 2, 2, 4],
    tiles: &[0, 3, 1, 9],
    column_starts: &[0, 0, 3, 3],
    columns: &[5, 70, 299],
    column_rows: &[1, 0, 0, 1, 3, 3],
};

fn refusal(parts: LayoutParts<'_>) -> String {
    check(300, TILING, &parts).map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn a_valid_layout_is_accepted() {
    assert_eq!(refusal(PARTS), "");
    let nothing: LayoutParts<'_> =
        LayoutParts { tile_starts: &[0], tiles: &[], column_starts: &[0], columns: &[], column_rows: &[] };
    assert!(check(0, TILING, &nothing).is_ok());
}

#[test]
fn an_invalid_layout_is_refused_with_the_reason() {
    let tiles = |tile_starts, tiles| LayoutParts { tile_starts, tiles, ..PARTS };
    assert!(refusal(tiles(&[0, 2, 4], PARTS.tiles)).contains("tile starts"));
    assert!(refusal(tiles(&[1, 2, 2, 4], PARTS.tiles)).contains("tile starts"));
    assert!(refusal(tiles(&[0, 2, 1, 4], PARTS.tiles)).contains("tile starts"));
    assert!(refusal(tiles(&[0, 2, 2, 3], PARTS.tiles)).contains("tile starts"));
    assert!(refusal(tiles(PARTS.tile_starts, &[0, 1, 1, 9])).contains("tiles of a block are not ascending"));
    assert!(refusal(tiles(PARTS.tile_starts, &[0, 3, 1, 11])).contains("beyond the end"));
    assert!(refusal(tiles(PARTS.tile_starts, &[0, 3, 1, 8])).contains("a full one extends beyond it"));
    let columns = |columns, column_rows| LayoutParts { columns, column_rows, ..PARTS };
    assert!(refusal(columns(&[5, 5, 299], PARTS.column_rows)).contains("columns of a block are not ascending"));
    assert!(refusal(columns(&[5, 70, 300], PARTS.column_rows)).contains("a column is beyond the end"));
    assert!(refusal(columns(PARTS.columns, &[1; 3])).contains("column masks"));
    assert!(refusal(columns(&[5], &[1; 2])).contains("column starts"));
    assert!(check(300, Tiling { rows: 64, keys: 64 }, &PARTS).is_err());
}

#[test]
fn blocks_with_the_most_work_come_first() {
    let works = works_of(&PARTS, TILING);
    assert_eq!(works[0], [0, 0, 2, 0, 0, 0, 3, 0]);
    assert_eq!(works[1], [2, 2, 2, 3, 0, 1, 9, 0]);
    assert_eq!(works[2], [1, 2, 0, 0, 3, 0, 0, 0]);
}

#[test]
fn dense_blocks_have_the_tiles_up_to_their_last_query() {
    let works = dense_works(300, TILING, true);
    assert_eq!(works.iter().map(|work| (work[0], work[2])).collect::<Vec<_>>(), [(2, 5), (1, 4), (0, 2)]);
    // The first tile is whole for all blocks but the first.
    assert_eq!(works.iter().map(|work| [work[5], work[6]]).collect::<Vec<_>>(), [[0, 2], [0, 2], [1, 3]]);
    let works = dense_works(100, TILING, false);
    assert_eq!(works, [[0, 0, 2, 0, 0, 0, 3, 0]]);
}

#[test]
fn a_window_that_holds_all_is_none() {
    let rule = |half_window, global| Rule { is_causal: true, half_window, global };
    assert_eq!(rule_words(rule(Some(299), 400), 300), [1, 299, 300]);
    assert_eq!(rule_words(rule(Some(300), 4), 300), [1, NO_WINDOW, 4]);
    assert_eq!(rule_words(rule(None, 0), 300), [1, NO_WINDOW, 0]);
}

#[test]
fn a_rule_keeps_what_is_near_or_global_and_never_what_comes_later() {
    let rule = Rule { is_causal: true, half_window: Some(2), global: 1 };
    let kept: Vec<u32> = (0..10).filter(|key| rule.allows(6, *key)).collect();
    assert_eq!(kept, [0, 4, 5, 6]);
    let kept: Vec<u32> = (0..10).filter(|key| Rule { is_causal: false, ..rule }.allows(6, *key)).collect();
    assert_eq!(kept, [0, 4, 5, 6, 7, 8]);
    assert!((0..10).all(|key| Rule { is_causal: false, ..rule }.allows(0, key)));
}
