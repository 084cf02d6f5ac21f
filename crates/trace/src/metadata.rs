//! The metadata of a run: rank and world size, devices, versions.

use serde::Deserialize;

/// The key of the list of devices, as in torch.profiler.
pub const DEVICES: &str = "deviceProperties";

/// The key of the distributed run information, as in torch.profiler.
pub const DISTRIBUTED: &str = "distributedInfo";

/// The key of the times in which a process did not record everything.
pub const NOT_RECORDED: &str = "notRecorded";

/// The key of the program that made the trace.
pub const SOURCE: &str = "source";

/// The title of a process in a trace of several ranks, such as `rank 3: python`.
pub fn rank_title(rank: u64, name: &str) -> String {
    format!("rank {rank}: {name}")
}

/// The rank in the title of a process; none if it has none.
pub fn rank_in_title(title: &str) -> Option<u64> {
    title.strip_prefix("rank ")?.split_once(':')?.0.parse().ok()
}

/// Entries with a key and a JSON value, in file order.
///
/// Readers keep the keys of their files, or torch.profiler's keys if several formats have the same entry.
///
/// ```
/// let mut metadata = laptime_trace::Metadata::default();
/// metadata.set("distributedInfo", r#"{"rank": 3, "world_size": 8}"#);
/// assert_eq!((metadata.rank(), metadata.world_size()), (Some(3), Some(8)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    entries: Vec<(String, String)>,
}

/// A device as described by the trace. Unknown values are none.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceProperties {
    /// The device id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    #[serde(rename = "totalGlobalMem")]
    pub memory_bytes: Option<u64>,
    /// The number of multiprocessors (compute units).
    #[serde(rename = "numSms")]
    pub multiprocessors: Option<u64>,
    /// The major compute capability.
    pub compute_major: Option<u64>,
    /// The minor compute capability.
    pub compute_minor: Option<u64>,
    /// Threads per warp (wavefront).
    pub warp_size: Option<u64>,
}

/// A stretch of time in which a process did not record everything: recording was paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct NotRecorded {
    /// The number of the process.
    pub process: i64,
    /// When it began, in nanoseconds of the trace.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

#[derive(Deserialize)]
struct Distributed {
    rank: Option<u64>,
    world_size: Option<u64>,
    pg_config: Option<Vec<serde_json::Value>>,
}

impl Metadata {
    /// Sets an entry; `json` is its value as JSON text. An entry with the same key is replaced.
    pub fn set(&mut self, key: &str, json: &str) {
        match self.entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, value)) => json.clone_into(value),
            None => self.entries.push((key.to_owned(), json.to_owned())),
        }
    }

    /// Sets an entry to a string.
    pub fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, &serde_json::Value::from(text).to_string());
    }

    /// The value of an entry, as JSON text.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, json)| json.as_str())
    }

    /// The value of an entry that is a string.
    pub fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// All entries: key, and value as JSON text.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, json)| (key.as_str(), json.as_str()))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The rank of this process in a distributed run.
    pub fn rank(&self) -> Option<u64> {
        self.distributed()?.rank
    }

    /// Sets the rank and keeps what else is known about the distributed run.
    pub fn set_rank(&mut self, rank: u64) {
        let known = self.get(DISTRIBUTED).and_then(|json| serde_json::from_str(json).ok());
        let mut info: serde_json::Map<String, serde_json::Value> = known.unwrap_or_default();
        info.insert("rank".to_owned(), rank.into());
        self.set(DISTRIBUTED, &serde_json::Value::Object(info).to_string());
    }

    /// The number of processes in the distributed run.
    pub fn world_size(&self) -> Option<u64> {
        self.distributed()?.world_size
    }

    /// The process groups of the distributed run: name and ranks. Invalid entries are ignored.
    pub fn process_groups(&self) -> Vec<(String, Vec<u32>)> {
        #[derive(Deserialize)]
        struct Group {
            pg_name: String,
            ranks: Vec<u32>,
        }
        let listed = self.distributed().and_then(|info| info.pg_config).unwrap_or_default();
        let groups = listed.into_iter().filter_map(|group| serde_json::from_value::<Group>(group).ok());
        groups.map(|group| (group.pg_name, group.ranks)).collect()
    }

    /// The devices in the metadata; invalid entries are ignored.
    pub fn devices(&self) -> Vec<DeviceProperties> {
        let listed: Option<Vec<serde_json::Value>> = self.get(DEVICES).and_then(|json| serde_json::from_str(json).ok());
        listed.unwrap_or_default().into_iter().filter_map(|device| serde_json::from_value(device).ok()).collect()
    }

    /// The times in which processes did not record everything: no gaps, although nothing seems to run in them.
    pub fn not_recorded(&self) -> Vec<NotRecorded> {
        self.get(NOT_RECORDED).and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }

    fn distributed(&self) -> Option<Distributed> {
        serde_json::from_str(self.get(DISTRIBUTED)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_far_as_they_are_described() {
        let mut metadata = Metadata::default();
        metadata.set(DEVICES, r#"[{"id": 1, "name": "H100", "totalGlobalMem": 80, "numSms": 132}, 7]"#);
        let expected = DeviceProperties {
            id: 1,
            name: "H100".to_owned(),
            memory_bytes: Some(80),
            multiprocessors: Some(132),
            ..DeviceProperties::default()
        };
        assert_eq!(metadata.devices(), [expected]);
    }

    #[test]
    fn process_groups_are_read_as_far_as_they_are_described() {
        let mut metadata = Metadata::default();
        metadata
            .set(DISTRIBUTED, r#"{"rank": 0, "pg_config": [{"pg_name": "dp", "ranks": [0, 2]}, {"pg_name": "x"}]}"#);
        assert_eq!((metadata.process_groups(), metadata.rank()), (vec![("dp".to_owned(), vec![0, 2])], Some(0)));
    }

    #[test]
    fn invalid_json_has_no_entries() {
        let mut metadata = Metadata::default();
        metadata.set(DISTRIBUTED, "{");
        metadata.set(DEVICES, "{}");
        assert_eq!((metadata.rank(), metadata.devices()), (None, vec![]));
    }
}
