//! What holds for any table.

use laptime_report::{Cell, Column, Format, Table, TextStyle, write};
use proptest::collection::vec;
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

const COLUMNS: [(&str, &str); 7] = [
    ("path", "stage"),
    ("kind", "kind"),
    ("count", "count"),
    ("host_ms", "host"),
    ("share", "share"),
    ("peak_bytes", "peak"),
    ("ratio", "ratio"),
];

fn columns() -> impl Strategy<Value = Vec<Column>> {
    vec(prop::option::of(0..4_u8), COLUMNS.len()).prop_map(|orders| {
        let columns = COLUMNS.iter().zip(orders);
        let column = |((key, label), order): (&(&'static str, &'static str), Option<u8>)| {
            let column = Column::new(*key, *label);
            order.map_or(column.clone(), |order| column.drop(order))
        };
        columns.map(column).collect()
    })
}

fn maybe(cell: impl Strategy<Value = Cell>) -> impl Strategy<Value = Cell> {
    prop::option::of(cell).prop_map(Cell::from)
}

fn row() -> impl Strategy<Value = Vec<Cell>> {
    let name = (0..30_usize, any::<String>()).prop_map(|(depth, name)| Cell::tree(depth, name.clone(), name));
    let cells = (
        maybe(name),
        maybe(any::<String>().prop_map(Cell::Text)),
        maybe(any::<u64>().prop_map(Cell::Count)),
        maybe(any::<u64>().prop_map(Cell::Nanos)),
        maybe(any::<f64>().prop_map(Cell::Share)),
        maybe(any::<u64>().prop_map(Cell::Bytes)),
        maybe(any::<f64>().prop_map(Cell::Number)),
    );
    cells.prop_map(|(a, b, c, d, e, f, g)| vec![a, b, c, d, e, f, g])
}

prop_compose! {
    fn tables()(
        columns in columns(), rows in vec(row(), 0..12), notes in vec(any::<String>(), 0..3),
    ) -> Table {
        let warnings = notes.iter().map(|text: &String| laptime_analyze::Note::new("outliers", text.clone())).collect();
        Table { notes, warnings, rows, ..Table::new("stages", columns) }
    }
}

fn written(table: &Table, format: Format, width: usize) -> String {
    let mut out = Vec::new();
    let style = TextStyle::plain(width);
    write(table, format, style, &mut out).expect("writing to a vector cannot fail");
    String::from_utf8(out).expect("all formats are text")
}

/// Returns the cell that was written as this field of a delimited file.
fn read_back(key: &str, field: &str) -> Cell {
    let number = || field.parse::<f64>().expect("the field is a number");
    let whole = || field.parse::<u64>().expect("the field is a whole number");
    match key {
        _ if field.is_empty() => Cell::Empty,
        "path" => Cell::tree(0, "", unescaped(field)),
        "kind" => Cell::text(unescaped(field)),
        "count" => Cell::Count(whole()),
        "peak_bytes" => Cell::Bytes(whole()),
        "share" => Cell::Share(number()),
        "host_ms" => Cell::Nanos(nanos(field)),
        _ => Cell::Number(number()),
    }
}

/// Undoes what keeps text from being run by a spreadsheet or hidden on a screen.
fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field.strip_prefix('\'').unwrap_or(field);
    while let Some((before, escape)) = rest.split_once("\\u{") {
        let (digits, behind) = escape.split_once('}').expect("an escape ends");
        let code = u32::from_str_radix(digits, 16).expect("an escape is a number");
        text.push_str(before);
        text.push(char::from_u32(code).expect("an escape is a character"));
        rest = behind;
    }
    text + rest
}

fn nanos(milliseconds: &str) -> u64 {
    let (whole, rest) = milliseconds.split_once('.').unwrap_or((milliseconds, ""));
    format!("{whole}{rest:0<6}").parse().expect("the field is a decimal")
}

/// Returns the cell without what delimited files do not carry.
fn carried(cell: &Cell) -> Cell {
    match cell {
        cell if cell.is_empty() => Cell::Empty,
        Cell::Text(text) if text.is_empty() => Cell::Empty,
        Cell::Tree { path, .. } if path.is_empty() => Cell::Empty,
        Cell::Tree { path, .. } => Cell::tree(0, "", path),
        cell => cell.clone(),
    }
}

fn parsed(text: &str, delimiter: u8) -> Vec<Vec<Cell>> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
    let records = reader.records().map(|record| record.expect("the rows are regular"));
    let row = |record: csv::StringRecord| {
        COLUMNS.iter().zip(&record).map(|((key, _), field)| read_back(key, field)).collect()
    };
    records.map(row).collect()
}

proptest! {
    #[test]
    fn delimited_files_read_back_as_the_same_cells(table in tables()) {
        let expected: Vec<Vec<_>> =
            table.rows.iter().map(|row| row.iter().map(carried).collect()).collect();
        prop_assert_eq!(&parsed(&written(&table, Format::Csv, 80), b','), &expected);
        prop_assert_eq!(&parsed(&written(&table, Format::Tsv, 80), b'\t'), &expected);
    }

    #[test]
    fn json_lines_have_every_column_in_order(table in tables()) {
        let text = written(&table, Format::Jsonl, 80);
        prop_assert_eq!(text.lines().count(), table.rows.len());
        for line in text.lines() {
            let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
            let keys: Vec<_> = row.keys().map(String::as_str).collect();
            prop_assert_eq!(keys, COLUMNS.map(|(key, _)| key));
        }
    }

    #[test]
    fn json_output_is_one_object(table in tables()) {
        let object: serde_json::Value = serde_json::from_str(&written(&table, Format::Json, 80)).unwrap();
        prop_assert_eq!(object["stages"].as_array().unwrap().len(), table.rows.len());
        prop_assert_eq!(object["notes"].as_array().unwrap().len(), table.notes.len());
    }

    #[test]
    fn text_is_never_wider_than_the_terminal(table in tables(), width in 40..160_usize) {
        for line in written(&table, Format::Text, width).lines() {
            prop_assert!(line.width() <= width, "{} columns: {line}", line.width());
        }
    }

    #[test]
    fn text_has_no_control_characters_except_line_ends(table in tables(), width in 0..160_usize) {
        let text = written(&table, Format::Text, width);
        prop_assert!(!text.chars().any(|char| char.is_control() && char != '\n'));
    }

    #[test]
    fn rows_that_end_in_a_count_are_as_long_as_the_header_rule(
        rows in vec((any::<String>(), any::<u64>()), 1..12), width in 36..160_usize,
    ) {
        let columns = [Column::new("name", "name"), Column::new("count", "count")];
        let mut table = Table::new("spans", columns);
        table.rows = rows.into_iter().map(|(name, count)| vec![Cell::Text(name), Cell::Count(count)]).collect();
        let text = written(&table, Format::Text, width);
        let widths: Vec<_> = text.lines().map(UnicodeWidthStr::width).collect();
        prop_assert_eq!(widths, vec![text.lines().nth(1).unwrap().width(); 2 + table.rows.len()]);
    }

    #[test]
    fn markdown_rows_have_the_same_cells_and_width(table in tables()) {
        let text = written(&table, Format::Md, 80);
        let rows = text.lines().filter(|line| line.starts_with("| ")).take(table.rows.len() + 2);
        let shapes: Vec<_> = rows.map(|row| (row.width(), row.replace("\\|", "").matches('|').count())).collect();
        prop_assert!(shapes.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
