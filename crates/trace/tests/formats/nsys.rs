//! Nsight Systems exports generated here: complete, of other versions, and damaged.

use std::{fs, path::PathBuf};

use laptime_trace::{MemoryKind, Nanos, ReadError, Span, Trace, TrackKind, read};
use rusqlite::Connection;
use tempfile::TempDir;

/// Process 17, threads 17 and 18; process 19.
const THREAD: i64 = (1 << 48) + (17 << 24) + 17;
const OTHER_THREAD: i64 = (1 << 48) + (17 << 24) + 18;
const OTHER_PROCESS: i64 = (1 << 48) + (19 << 24) + 19;

const STRINGS: &str = "
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'gemm<float>(float*)'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000'),
        (4, 'cudaMemcpyAsync_v3020'), (5, 'cudaStreamSynchronize_v3020'), (6, 'registered range'), (7, 'python');";

const DEVICE: &str = "
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, \"end\" INT, deviceId INT, contextId INT, streamId INT,
        correlationId INT, globalPid INT, demangledName INT, shortName INT, gridX INT, gridY INT, gridZ INT,
        blockX INT, blockY INT, blockZ INT, registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, \"end\" INT, deviceId INT, contextId INT, streamId INT,
        correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT, \"end\" INT, deviceId INT, streamId INT, correlationId INT,
        globalPid INT, bytes INT, value INT, memKind INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, \"end\" INT, deviceId INT, streamId INT,
        correlationId INT, globalPid INT, syncType INT, eventId INT);";

const HOST: &str = "
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, \"end\" INT, eventClass INT, globalTid INT,
        correlationId INT, nameId INT, returnValue INT);
    CREATE TABLE NVTX_EVENTS (start INT, \"end\" INT, eventType INT, text TEXT, textId INT, globalTid INT,
        endGlobalTid INT, domainId INT, int64Value INT);
    CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT);
    CREATE TABLE ThreadNames (nameId INT, globalTid INT);
    CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, totalMemory INT, smCount INT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT, systemClockNs INT);
    CREATE TABLE OSRT_API (start INT, \"end\" INT);";

struct Export {
    folder: TempDir,
}

impl Export {
    fn new(statements: &[&str]) -> Self {
        let export = Self { folder: tempfile::tempdir().unwrap() };
        let connection = Connection::open(export.path()).unwrap();
        statements.iter().for_each(|sql| connection.execute_batch(sql).unwrap());
        export
    }

    fn whole() -> Self {
        let rows = format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
                (200, 260, 0, 1, 7, 90, {THREAD}, 1, 2, 4, 8, 1, 128, 1, 1, 96, 1024, 512),
                (210, 280, 1, 2, 15, 90, {OTHER_PROCESS}, 1, 2, 4, 8, 1, 128, 1, 1, 96, 1024, 512);
             INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (300, 340, 0, 1, 20, 91, {THREAD}, 4096, 1, 0, 2);
             INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (350, 351, 0, 20, NULL, {THREAD}, 64, 0, 2);
             INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
                (360, 400, 0, 7, 92, {THREAD}, 3, 0), (410, 420, 0, 4294967295, 93, {THREAD}, 4, 0);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                (100, 110, 0, {THREAD}, 90, 3, 0), (105, 115, 0, {OTHER_PROCESS}, 90, 3, 0),
                (120, 130, 0, {THREAD}, 91, 4, 0), (355, 405, 0, {THREAD}, 92, 5, 719);
             INSERT INTO NVTX_EVENTS VALUES
                (0, NULL, 75, 'My domain', NULL, {THREAD}, NULL, 1, NULL),
                (90, 500, 59, 'step', NULL, {THREAD}, NULL, 1, 3),
                (95, 140, 59, NULL, 6, {THREAD}, NULL, 0, NULL),
                (96, 600, 60, 'request', NULL, {THREAD}, {OTHER_THREAD}, 0, NULL),
                (97, 610, 60, 'request', NULL, {OTHER_THREAD}, {THREAD}, 0, NULL),
                (98, NULL, 34, 'here', NULL, {OTHER_THREAD}, NULL, 0, NULL),
                (99, NULL, 59, 'never ends', NULL, {OTHER_THREAD}, NULL, 0, NULL);
             INSERT INTO PROCESSES VALUES ({THREAD} - 17, 17, 'python3');
             INSERT INTO ThreadNames VALUES (7, {THREAD});
             INSERT INTO TARGET_INFO_GPU VALUES (0, 'Example GPU', 85899345920, 132), (1, 'Example GPU', NULL, 132);
             INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779630014000000000, 14000000000);
             INSERT INTO OSRT_API VALUES (1, 2), (3, 4);"
        );
        Self::new(&[STRINGS, DEVICE, HOST, &rows])
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("an export #1.sqlite")
    }

    fn read(&self) -> Trace {
        let trace = read(self.path()).unwrap();
        assert_eq!(trace.check(), Ok(()));
        trace
    }
}

fn effects(trace: &Trace, cause: Span<'_>) -> Vec<(String, Option<i64>)> {
    let of_cause = trace.flows().iter().filter(|flow| flow.from == cause.id);
    of_cause.map(|flow| trace.span(flow.to)).map(|to| (to.name.to_owned(), trace.track(to.track).device)).collect()
}

const OUTLINE: &str = "stream 7 (device stream on device 0)
  kernel:gemm<float>(float*)  200..260  device=0  context=1  stream=7  correlation=90  registers per thread=96  \
shared memory=1536  grid=[4, 8, 1]  block=[128, 1, 1]
  cuda_sync:Stream Sync  360..400  device=0  stream=7  correlation=92  cuda_sync_kind=Stream Sync  \
wait_on_cuda_event_id=0
stream 15 (device stream on device 1)
  kernel:gemm<float>(float*)  210..280  device=1  context=2  stream=15  correlation=90  registers per thread=96  \
shared memory=1536  grid=[4, 8, 1]  block=[128, 1, 1]
stream 20 (device stream on device 0)
  gpu_memcpy:Memcpy HtoD (Pageable -> Device)  300..340  device=0  context=1  stream=20  correlation=91  bytes=4096  \
kind=HtoD
  gpu_memset:Memset (Device)  350..351  device=0  stream=20  bytes=64  value=0
all streams (device stream on device 0)
  cuda_sync:Context Sync  410..420  device=0  stream=4294967295  correlation=93  cuda_sync_kind=Context Sync  \
wait_on_cuda_event_id=0
python
  nvtx:step  90..500  domain=My domain  payload=3
    nvtx:registered range  95..140
      cuda_runtime:cudaLaunchKernel  100..110  correlation=90
      cuda_runtime:cudaMemcpyAsync  120..130  correlation=91
    cuda_runtime:cudaStreamSynchronize  355..405  correlation=92  return value=719
thread 19
  cuda_runtime:cudaLaunchKernel  105..115  correlation=90
NVTX ranges (host lane)
  nvtx:request  96..600
  nvtx:request  97..610  lane 1
thread 18
  nvtx:never ends  99..610  open
  ! nvtx:here  98
flow cudaLaunchKernel 100 -> gemm<float>(float*) 200
flow cudaMemcpyAsync 120 -> Memcpy HtoD (Pageable -> Device) 300
flow cudaStreamSynchronize 355 -> Stream Sync 360
flow cudaLaunchKernel 105 -> gemm<float>(float*) 210
";

#[test]
fn an_export_is_read_whole() {
    let trace = Export::whole().read();
    let outline = trace.outline();
    assert!(outline.starts_with(OUTLINE), "{outline}");
    assert_eq!(
        trace.warnings,
        [
            "1 span has no end and was closed at the end of the trace",
            "1 device span has no launching call",
            "2 rows of table `OSRT_API` were skipped",
        ]
    );
}

#[test]
fn correlations_are_those_of_a_process() {
    let trace = Export::whole().read();
    let launches: Vec<_> = trace.spans().filter(|span| span.name == "cudaLaunchKernel").collect();
    let kernel = "gemm<float>(float*)".to_owned();
    assert_eq!(effects(&trace, launches[0]), [(kernel.clone(), Some(0))]);
    assert_eq!(effects(&trace, launches[1]), [(kernel, Some(1))]);
}

#[test]
fn the_words_are_those_of_other_readers() {
    let trace = Export::whole().read();
    let waits: Vec<_> = trace.spans().filter(Span::is_wait).map(|span| span.name).collect();
    assert_eq!(waits, ["cudaStreamSynchronize"]);
    let copy = trace.spans().find_map(|span| span.copy_path()).unwrap();
    assert_eq!((copy.from, copy.to, copy.bytes), (MemoryKind::Pageable, MemoryKind::Device, Some(4096)));
    let devices = trace.metadata.devices();
    assert_eq!((devices.len(), devices[0].memory_bytes, devices[1].memory_bytes), (2, Some(85_899_345_920), None));
    assert_eq!(trace.origin.unix_nanos, Some(1_779_630_000_000_000_000));
}

#[test]
fn nothing_is_left_next_to_the_file_and_the_file_stays_as_it_is() {
    let export = Export::whole();
    let connection = Connection::open(export.path()).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    drop(connection);
    let before = fs::read(export.path()).unwrap();
    export.read();
    assert_eq!(fs::read(export.path()).unwrap(), before);
    let beside: Vec<_> = fs::read_dir(export.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(beside, ["an export #1.sqlite"]);
}

#[test]
fn a_file_that_nobody_may_write_to_is_read() {
    let export = Export::whole();
    let mut permissions = fs::metadata(export.path()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(export.path(), permissions).unwrap();
    assert!(export.read().span_count() > 0);
}

#[test]
fn times_before_zero_are_moved_behind_it() {
    let rows = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (-3000, -500, 0, 1, 1, 3, 0), (10, 20, 0, 1, 2, 3, 0);";
    let trace = Export::new(&[STRINGS, HOST, rows]).read();
    let starts: Vec<_> = trace.spans().map(|span| span.start).collect();
    assert_eq!(starts, [Nanos(0), Nanos(3_010)]);
}

#[test]
fn missing_columns_are_reported_and_the_rest_is_read() {
    let kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, \"end\" INT, streamId INT);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 7);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, bytes INT);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (10, 20);";
    let trace = Export::new(&[kernels]).read();
    assert_eq!(trace.spans().map(|span| span.name).collect::<Vec<_>>(), ["unnamed kernel"]);
    assert_eq!(
        trace.warnings,
        [
            "table `CUPTI_ACTIVITY_KIND_KERNEL` has no column `deviceId`, `correlationId`, `demangledName`",
            "table `CUPTI_ACTIVITY_KIND_MEMCPY` has no column `end`, `deviceId`, `streamId`, `correlationId`, `copyKind`",
        ]
    );
}

#[test]
fn values_of_wrong_types_and_absurd_times_cost_their_row_alone() {
    let rows = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
        ('soon', 5, 0, 1, 1, 3, 0), (9223372036854775807, 5, 0, 1, 1, 3, 0), (-9223372036854775808, 5, 0, 1, 1, 3, 0),
        (20, 10, 0, 1, 1, 3, 0), (NULL, NULL, NULL, NULL, NULL, NULL, NULL), (10, 20, x'00', 'x', 1.5, 99, 'y'),
        (30, 40, 0, 1, 1, 3, 0);";
    let trace = Export::new(&[STRINGS, HOST, rows]).read();
    assert_eq!(trace.spans().map(|span| span.name).collect::<Vec<_>>(), ["unnamed call", "cudaLaunchKernel"]);
    assert_eq!(trace.warnings, ["5 rows without a valid time were skipped"]);
}

#[test]
fn another_database_is_not_a_trace() {
    let export = Export::new(&["CREATE TABLE people (name TEXT)"]);
    let error = read(export.path()).unwrap_err();
    let expected = "this is not a trace: an SQLite database without the tables of an Nsight Systems export";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_export_without_cuda_is_no_other_database() {
    let export = Export::new(&["CREATE TABLE META_DATA_EXPORT (name TEXT)", "CREATE TABLE OSRT_API (start INTEGER)"]);
    let error = read(export.path()).unwrap_err();
    assert!(error.to_string().contains("an Nsight Systems export without CUDA calls"), "{error}");
}

#[test]
fn a_database_cut_off_or_overwritten_anywhere_is_read_in_part_or_reported() {
    let export = Export::whole();
    let whole = fs::read(export.path()).unwrap();
    let path = export.folder.path().join("damaged.sqlite");
    for at in (20..whole.len()).step_by(509) {
        fs::write(&path, &whole[..at]).unwrap();
        let _ = read(&path).map(|trace| assert_eq!(trace.check(), Ok(())));
        let mut overwritten = whole.clone();
        let end = (at + 40).min(whole.len());
        overwritten[at..end].fill(0xa5);
        fs::write(&path, &overwritten).unwrap();
        let _ = read(&path).map(|trace| assert_eq!(trace.check(), Ok(())));
    }
}

#[test]
fn a_stream_of_bytes_says_that_a_file_is_needed() {
    let bytes = fs::read(Export::whole().path()).unwrap();
    assert!(matches!(laptime_trace::read_from(bytes.as_slice()), Err(ReadError::NotATrace { .. })));
}

#[test]
fn a_million_streams_are_a_million_tracks() {
    let rows = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, \"end\", deviceId, streamId, demangledName)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
        SELECT i, i + 1, i % 7, i, 1 FROM n;";
    let trace = Export::new(&[STRINGS, DEVICE, rows]).read();
    assert_eq!(trace.tracks().filter(|(_, track)| track.kind == TrackKind::Stream).count(), 1_000_000);
}

#[test]
fn members_of_an_nvtx_payload_are_fields_of_its_range() {
    let export = Export::new(&[&format!(
        "CREATE TABLE NVTX_EVENTS (start INT, \"end\" INT, eventType INT, text TEXT, globalTid INT, jsonText TEXT);
         INSERT INTO NVTX_EVENTS VALUES
            (10, 20, 59, 'ncclAllReduce', {THREAD},
             '{{\"NCCL communicator ID\": 18446744073709551615, \"Message size [bytes]\": 4096, \"Reduction operation\": \"Sum\"}}'),
            (30, 40, 59, 'ncclSend', {THREAD}, 'no object');"
    )]);
    let trace = export.read();
    let fields: Vec<String> = trace
        .spans()
        .flat_map(|span| span.fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        .collect();
    let expected =
        ["NCCL communicator ID=18446744073709551615", "Message size [bytes]=4096", "Reduction operation=Sum"];
    assert_eq!(fields, expected);
}
