use super::*;

pub const QWEN3_4B: StepSizes = StepSizes {
    batch: 1,
    hidden: 2560,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    ffn: 9728,
    vocab: 151_936,
    capacity: 4096,
};

#[test]
fn sizes_that_cannot_be_are_refused() {
    let check = |sizes: StepSizes| sizes.check().map_err(|error| error.to_string());
    assert_eq!(check(QWEN3_4B), Ok(()));
    for wrong in [
        StepSizes { batch: 0, ..QWEN3_4B },
        StepSizes { kv_heads: 5, ..QWEN3_4B },
        StepSizes { head_dim: 63, ..QWEN3_4B },
        StepSizes { head_dim: 258, ..QWEN3_4B },
        StepSizes { heads: u32::MAX, kv_heads: 1, ..QWEN3_4B },
    ] {
        assert!(check(wrong).is_err(), "{wrong:?}");
    }
}

pub const H200: Limits =
    Limits { multiprocessors: 132, has_clusters: true, has_tensor_cores: true, shared_limit: 227 << 10 };

#[test]
fn without_tensor_cores_a_block_takes_four_heads_of_a_key_unless_contexts_are_long() {
    let heads = |capacity, heads| {
        let sizes = StepSizes { capacity, heads, ..QWEN3_4B };
        Tuning::chosen(&sizes, Limits { has_tensor_cores: false, ..H200 }).attention.heads
    };
    assert_eq!([8, 16, 32, 56, 128].map(|all| heads(1024, all)), [1, 2, 4, 4, 4]);
    assert_eq!([8, 16, 32, 56, 128].map(|all| heads(4096, all)), [1, 1, 2, 4, 4]);
}

#[test]
fn tensor_cores_take_all_heads_of_a_key_and_as_many_blocks_as_there_is_room_for() {
    let spread = |batch, capacity| Tuning::chosen(&StepSizes { batch, capacity, ..QWEN3_4B }, H200).attention;
    assert!(!spread(1, 1024).on_tensor_cores);
    let splits = [(1, 33_000), (2, 33_000), (8, 1024), (16, 1024), (32, 1024), (128, 1024)].map(|(batch, room)| {
        let AttentionTuning { heads, splits, on_tensor_cores, .. } = spread(batch, room);
        assert!(heads == 4 && on_tensor_cores);
        splits
    });
    assert_eq!(splits, [16, 8, 2, 1, 1, 1]);
    let without = Tuning::chosen(&StepSizes { batch: 8, ..QWEN3_4B }, Limits { has_clusters: false, ..H200 });
    assert_eq!(without.attention.splits, 1);
}

#[test]
fn blocks_are_smaller_where_attention_needs_registers_or_memory_is_short() {
    let warps = |heads, shared_limit| {
        let sizes = StepSizes { capacity: 1024, heads, ..QWEN3_4B };
        Tuning::chosen(&sizes, Limits { shared_limit, ..H200 }).warps
    };
    assert_eq!((warps(16, 227 << 10), warps(32, 227 << 10), warps(16, 99 << 10)), (16, 12, 8));
}
