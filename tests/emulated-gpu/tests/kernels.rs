//! Small PTX kernels with known results.
#![allow(unsafe_code, reason = "a launch uses memory by addresses")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use laptime_emulated_gpu::{Matrix, Module, Product, Region, Shape};

/// A kernel with two parameters, `out` and `in`. Their addresses are in `%out` and `%in`, and the thread's number, and
/// that of its place in both for 4 bytes, in `%t`, `%to` and `%from`.
fn module(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry test(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .pred %p<8>;\n.reg .b16 %h<16>;\n.reg .b32 %r<64>;\n.reg .f32 %f<32>;\n.reg .b64 %rd<32>;\n\
         .reg .b32 %t; .reg .b64 %out; .reg .b64 %in; .reg .b64 %at; .reg .b64 %to; .reg .b64 %from;\n\
         ld.param.u64 %out, [out];\nld.param.u64 %in, [in];\nmov.u32 %t, %tid.x;\n\
         mul.wide.u32 %at, %t, 4;\nadd.s64 %to, %out, %at;\nadd.s64 %from, %in, %at;\n.loc 1 7 0\n{body}\nret;\n}}\n"
    )
}

fn launch(ptx: &str, [blocks, threads]: [u32; 2], values: &[u32], count: usize) -> Result<Vec<u32>, String> {
    let mut out = vec![0_u32; count];
    let places = [out.as_mut_ptr() as u64, values.as_ptr() as u64];
    let sizes = [count, values.len()].map(|count| 4 * count as u64);
    let mut regions = [0, 1].map(|at| Region { from: places[at], end: places[at] + sizes[at] });
    regions.sort_unstable_by_key(|region| region.from);
    let parameters: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    let shape = Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 4096 };
    // SAFETY: the regions are those of both vectors.
    unsafe { Module::new(ptx)?.kernel("test")?.launch(shape, &parameters, &regions)? };
    Ok(out)
}

/// Runs a block of threads that write one element each.
fn run(body: &str, threads: u32, values: &[u32]) -> Vec<u32> {
    launch(&module(body), [1, threads], values, threads as usize).unwrap()
}

fn fault(body: &str, threads: u32) -> String {
    launch(&module(body), [1, threads], &[0; 64], threads as usize).unwrap_err()
}

fn each(threads: u32, value: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..threads).map(value).collect()
}

#[test]
fn integers_are_computed_in_every_lane() {
    let body =
        "ld.global.u32 %r1, [%from]; mad.lo.s32 %r2, %r1, 3, 5; shl.b32 %r3, %r2, 30; bfi.b32 %r4, %r1, %r3, 4, 8;
        prmt.b32 %r5, %r4, %r1, 0x1704; mul.wide.u32 %rd1, %r5, %r4; shr.u64 %rd2, %rd1, 7; cvt.u32.u64 %r6, %rd2;
        lop3.b32 %r7, %r6, %r1, %r4, 0x96; st.global.u32 [%to], %r7;";
    let values = each(32, |lane| lane.wrapping_mul(2_654_435_761));
    let expected = values.iter().map(|value| {
        let shifted = value.wrapping_mul(3).wrapping_add(5) << 30;
        let inserted = shifted & !0xff0 | (value & 0xff) << 4;
        // The bytes 4, 0, 7 and 1 of the value behind what was inserted.
        let bytes =
            [value.to_le_bytes()[0], inserted.to_le_bytes()[0], value.to_le_bytes()[3], inserted.to_le_bytes()[1]];
        ((u64::from(u32::from_le_bytes(bytes)) * u64::from(inserted)) >> 7) as u32 ^ value ^ inserted
    });
    assert_eq!(run(body, 32, &values), expected.collect::<Vec<_>>());
}

#[test]
fn floats_are_rounded_as_ieee_says() {
    let body = "ld.global.f32 %f1, [%from]; fma.rn.f32 %f2, %f1, %f1, 0fBF800000; div.rn.f32 %f3, %f2, 0f40400000;
        cvt.rn.bf16x2.f32 %r1, %f3, %f1; mov.b32 {%h1, %h2}, %r1; cvt.f32.bf16 %f4, %h1; cvt.rn.f16.f32 %h3, %f3;
        cvt.f32.f16 %f5, %h3; add.f32 %f6, %f4, %f5; st.global.f32 [%to], %f6;";
    let value = |lane: u32| 1.0 + lane as f32 * 0.37;
    let found = run(body, 32, &each(32, |lane| value(lane).to_bits()));
    for (lane, found) in (0..32).zip(found) {
        let third = value(lane).mul_add(value(lane), -1.0) / 3.0;
        let error = f32::from_bits(found) - value(lane) - third;
        assert!(error.abs() <= value(lane) / 256.0 + third / 2048.0, "{lane}: {error}");
        assert_eq!(found & 0xfff, found & 0xfff & !0x3, "{lane}: what was narrowed has no such bits");
    }
}

#[test]
fn lanes_that_part_meet_again() {
    // Each lane counts to its number, odd lanes add something, and then all exchange.
    let body = "mov.u32 %r1, 0; AGAIN: setp.ge.u32 %p1, %r1, %t; @%p1 bra DONE; add.s32 %r1, %r1, 1; bra AGAIN;
        DONE: and.b32 %r2, %t, 1; setp.eq.s32 %p2, %r2, 0; @%p2 bra EVEN; add.s32 %r1, %r1, 100; EVEN:
        shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; st.global.u32 [%to], %r3;";
    assert_eq!(run(body, 32, &[]), each(32, |lane| (lane ^ 1) + if lane % 2 == 0 { 100 } else { 0 }));
}

#[test]
fn a_guard_keeps_what_other_lanes_have() {
    let body = "mov.u32 %r1, 7; setp.lt.u32 %p1, %t, 5; @%p1 mov.u32 %r1, %t; @!%p1 add.s32 %r1, %r1, 1;
        selp.b32 %r2, %r1, 0, %p1; add.s32 %r3, %r1, %r2; st.global.u32 [%to], %r3;";
    assert_eq!(run(body, 40, &[]), each(40, |thread| if thread < 5 { 2 * thread } else { 8 }));
}

#[test]
fn shuffles_stay_within_their_segments() {
    let body = "shfl.sync.up.b32 %r1|%p1, %t, 3, 0x1800, -1; selp.b32 %r2, %r1, 99, %p1;
        shfl.sync.idx.b32 %r3, %t, 2, 0x181f, -1; vote.sync.ballot.b32 %r4, %p1, -1; popc.b32 %r5, %r4;
        mad.lo.s32 %r6, %r3, 1000, %r2; mad.lo.s32 %r7, %r5, 100000, %r6; st.global.u32 [%to], %r7;";
    let up = |lane: u32| if lane % 8 >= 3 { lane - 3 } else { 99 };
    assert_eq!(run(body, 32, &[]), each(32, |lane| up(lane) + (lane / 8 * 8 + 2) * 1000 + 20 * 100_000));
}

#[test]
fn a_block_waits_at_its_barriers() {
    // The first half of the block reverses numbers behind a barrier of its own, then all do behind that of the block.
    let body = ".shared .align 4 .b8 kept[512]; mov.u64 %rd1, kept; add.s64 %rd2, %rd1, %at;
        setp.ge.u32 %p1, %t, 64; @%p1 bra ALL; st.shared.u32 [%rd2], %t; bar.sync 1, 64;
        sub.s32 %r1, 63, %t; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; ld.shared.u32 %r2, [%rd4];
        bar.sync 1, 64; st.shared.u32 [%rd2], %r2; bra MEET; ALL: st.shared.u32 [%rd2], %t; MEET: bar.sync 0;
        sub.s32 %r3, 127, %t; mul.wide.u32 %rd5, %r3, 4; add.s64 %rd6, %rd1, %rd5; ld.shared.u32 %r4, [%rd6];
        st.global.u32 [%to], %r4;";
    assert_eq!(run(body, 128, &[]), each(128, |thread| if thread < 64 { 127 - thread } else { thread - 64 }));
}

#[test]
fn atomic_operations_of_all_blocks_count() {
    let body = "mov.u32 %r1, %ctaid.x; atom.global.add.u32 %r2, [%out], 1; atom.global.max.u32 %r3, [%out+4], %r1;
        red.global.add.f32 [%out+8], 0f3F000000;";
    let found = launch(&module(body), [50, 40], &[], 3).unwrap();
    assert_eq!((found[0], found[1], f32::from_bits(found[2])), (2000, 49, 1000.0));
}

#[test]
fn blocks_of_a_cluster_write_to_each_other() {
    let body = ".shared .align 4 .b8 kept[128]; mov.u64 %rd1, kept; add.s64 %rd2, %rd1, %at; cvt.u32.u64 %r1, %rd2;
        mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mapa.shared::cluster.u32 %r4, %r1, %r3;
        mad.lo.s32 %r5, %r2, 1000, %t; st.shared::cluster.u32 [%r4], %r5;
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ld.shared.u32 %r6, [%rd2];
        mov.u32 %r7, %ctaid.x; mul.wide.u32 %rd3, %r7, 128; add.s64 %rd4, %to, %rd3; st.global.u32 [%rd4], %r6;";
    let ptx = module(body).replacen(")\n{", ")\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{", 1);
    let found = launch(&ptx, [4, 32], &[], 128).unwrap();
    assert_eq!(found, each(128, |at| at % 32 + (1 - at / 32 % 2) * 1000));
}

#[test]
fn copies_and_matrices_are_those_of_a_plain_product() {
    // a [16, 16] and b [8, 16] in f16 go to shared memory, and are multiplied.
    let body = "mul.wide.u32 %rd1, %t, 16; add.s64 %rd2, %in, %rd1; mov.u64 %rd3, dynamic; cvt.u32.u64 %r1, %rd3;
        mad.lo.s32 %r2, %t, 16, %r1; cp.async.cg.shared.global [%r2], [%rd2], 16;
        setp.lt.u32 %p1, %t, 16; @%p1 cp.async.cg.shared.global [%r2+512], [%rd2+512], 16;
        cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
        and.b32 %r3, %t, 15; shr.u32 %r4, %t, 4; shl.b32 %r5, %r3, 5; shl.b32 %r6, %r4, 4; add.s32 %r7, %r5, %r6;
        add.s32 %r8, %r7, %r1; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r8];
        and.b32 %r14, %t, 7; shr.u32 %r15, %t, 3; and.b32 %r15, %r15, 1; shl.b32 %r16, %r14, 5; shl.b32 %r17, %r15, 4;
        add.s32 %r18, %r16, %r17; add.s32 %r19, %r18, %r1;
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r20, %r21}, [%r19+512];
        mov.f32 %f1, 0f3F800000;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r10, %r11, %r12, %r13}, {%r20, %r21},
        {%f1, %f1, %f1, %f1};
        shr.u32 %r30, %t, 2; and.b32 %r31, %t, 3; shl.b32 %r32, %r30, 5; shl.b32 %r33, %r31, 3; add.s32 %r34, %r32, %r33;
        cvt.u64.u32 %rd4, %r34; add.s64 %rd5, %out, %rd4; st.global.v2.f32 [%rd5], {%f2, %f3};
        st.global.v2.f32 [%rd5+256], {%f4, %f5};";
    // Small whole numbers are exact in f16.
    let bits = |value: i32| [0xc000_u32, 0xbc00, 0, 0x3c00, 0x4000][(value + 2) as usize];
    let value = |at: usize| (at * 7 % 11) as i32 % 5 - 2;
    let values: Vec<u32> = (0..192).map(|at| bits(value(2 * at)) | bits(value(2 * at + 1)) << 16).collect();
    // Guarded copies have no offset in our kernels, so the second one gets registers of its own.
    let body = body.replace(
        "@%p1 cp.async.cg.shared.global [%r2+512], [%rd2+512], 16;",
        "add.s32 %r9, %r2, 512;
        add.s64 %rd6, %rd2, 512; @%p1 cp.async.cg.shared.global [%r9], [%rd6], 16;",
    );
    let found = launch(&module(&body), [1, 32], &values, 128).unwrap();
    for (at, found) in found.iter().enumerate() {
        let (row, column) = (at / 8, at % 8);
        let sum: i32 = (0..16).map(|k| value(row * 16 + k) * value(256 + column * 16 + k)).sum();
        assert_eq!(f32::from_bits(*found), (sum + 1) as f32, "{row}, {column}");
    }
}

#[test]
fn an_access_outside_of_memory_names_the_place() {
    let body = "setp.eq.s32 %p1, %t, 9; @%p1 add.s64 %to, %to, 4096; st.global.u32 [%to], %t;";
    let text = fault(body, 32);
    assert!(text.starts_with("`test`, block [0, 0, 0], thread [9, 0, 0]: line 7: 4 bytes at 0x"), "{text}");
    assert!(text.ends_with("are outside the memory that is allocated"), "{text}");
    let text = fault("add.s64 %to, %to, 2; st.global.u32 [%to], %t;", 1);
    assert!(text.ends_with("are misaligned"), "{text}");
    let text = fault("mov.u64 %rd1, dynamic; ld.shared.u32 %r1, [%rd1+4096];", 1);
    assert!(text.ends_with("are outside of shared memory"), "{text}");
}

#[test]
fn a_barrier_that_not_all_reach_is_reported() {
    let text = fault("setp.eq.s32 %p1, %t, 0; @%p1 bar.sync 1, 64; bar.sync 0;", 32);
    assert!(text.contains("no thread can go on"), "{text}");
    let text =
        fault("setp.eq.s32 %p1, %t, 0; @%p1 bra PART; bar.sync 0; PART: shfl.sync.bfly.b32 %r1, %t, 1, 31, -1;", 32);
    assert!(text.contains("which never come") || text.contains("no thread can go on"), "{text}");
}

#[test]
fn a_missing_barrier_changes_the_result() {
    // Each thread reads what the thread 32 before or behind it wrote, without waiting for it.
    for apart in ["add.s32 %r1, %t, 32", "add.s32 %r1, %t, 96"] {
        let body = |barrier: &str| {
            format!(
                ".shared .align 4 .b8 kept[512]; mov.u64 %rd1, kept; add.s64 %rd2, %rd1, %at; st.shared.u32 [%rd2], %t;
                {barrier} {apart}; and.b32 %r1, %r1, 127; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3;
                ld.shared.u32 %r2, [%rd4]; mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd5, %r3, 512; add.s64 %rd6, %to, %rd5;
                st.global.u32 [%rd6], %r2;"
            )
        };
        let runs = |barrier| launch(&module(&body(barrier)), [2, 128], &[], 256).unwrap();
        assert!(runs("").iter().any(|found| *found > 127));
        assert!(runs("bar.sync 0;").iter().all(|found| *found <= 127));
    }
}

#[test]
fn shared_memory_that_nobody_wrote_is_no_number() {
    let body = "mov.u64 %rd1, dynamic; ld.shared.f32 %f1, [%rd1]; st.global.f32 [%to], %f1;";
    assert!(f32::from_bits(run(body, 1, &[])[0]).is_nan());
}

#[test]
fn what_is_not_known_is_named() {
    let text = launch(&module("nonsense.f32 %f1, %f2;"), [1, 1], &[], 1).unwrap_err();
    assert_eq!(text, "kernel `test`: line 7: `nonsense.f32`: an unknown instruction");
    assert!(launch(&module("mov.u32 %r1, nothing;"), [1, 1], &[], 1).unwrap_err().contains("unknown name `nothing`"));
}

#[test]
fn a_product_is_column_major_and_scaled() {
    // a [3, 2] is given as its transpose, b is [2, 5].
    let [a, b] = [6, 10].map(|count| (0..count).map(|at| at as f32 - 2.0).collect::<Vec<_>>());
    let mut c = vec![1.0_f32; 15];
    let matrix =
        |at: *const f32, column, is_transposed| Matrix { address: at as u64, column, stride: 0, is_transposed };
    let (of_a, of_b, of_c) = (matrix(a.as_ptr(), 2, 1), matrix(b.as_ptr(), 2, 0), matrix(c.as_mut_ptr(), 3, 0));
    let product = Product { a: of_a, b: of_b, c: of_c, m: 3, n: 5, k: 2, count: 1, number: 0, scale: 2.0, kept: 10.0 };
    let region = |at: u64, count: usize| Region { from: at, end: at + 4 * count as u64 };
    let regions = [region(of_a.address, 6), region(of_b.address, 10), region(of_c.address, 15)];
    // SAFETY: the regions are those of the vectors.
    unsafe { product.run(&regions).unwrap() };
    for (at, found) in c.iter().enumerate() {
        let (row, column) = (at % 3, at / 3);
        let sum: f32 = (0..2).map(|k| a[row * 2 + k] * b[column * 2 + k]).sum();
        assert_eq!(*found, 2.0 * sum + 10.0, "{row}, {column}");
    }
    // SAFETY: as above.
    let text = unsafe { product.run(&regions[..2]).unwrap_err() };
    assert!(text.starts_with("a product of 3 x 5 x 2: ") && text.ends_with("is not allocated"), "{text}");
}
