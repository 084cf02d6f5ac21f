//! The rules of every KV cache, on the CPU and on a GPU.

use crate::{Config, KeysValues, ModelError, Options, Room};

/// The sizes of a cache, and what it refuses.
#[derive(Debug, Clone)]
pub struct CacheRules {
    layers: usize,
    /// Numbers of all heads of all sequences at one position.
    width: usize,
    /// Positions that there can be.
    pub most: usize,
    /// What is too short if there are more.
    limit: String,
}

impl CacheRules {
    pub fn new(config: &Config, options: &Options) -> Self {
        let (most, limit) = match options.room {
            Room::Static(room) if room < config.context => (room, "the cache".to_owned()),
            _ => (config.context, config.name.clone()),
        };
        let width = options.batch.saturating_mul(config.kv_heads).saturating_mul(config.head_dim);
        Self { layers: config.layers, width, most, limit }
    }

    /// Refuses more positions than there can be.
    pub fn check_room(&self, positions: usize) -> Result<(), ModelError> {
        match positions > self.most {
            true => Err(ModelError::TooLong { tokens: positions, what: self.limit.clone(), room: self.most }),
            false => Ok(()),
        }
    }

    /// Refuses a layer that there is not.
    pub fn check_layer(&self, layer: usize) -> Result<(), ModelError> {
        match layer < self.layers {
            true => Ok(()),
            false => Err(refused(format!("there is no layer {layer}: there are {}", self.layers))),
        }
    }

    /// Refuses keys and values that are not of the cache's shape, or that begin behind what a layer has.
    pub fn check_write(&self, layer: usize, written: usize, start: usize, from: &KeysValues) -> Result<(), ModelError> {
        let expected = self.width.saturating_mul(from.length);
        if from.keys.len() != expected || from.values.len() != expected {
            let (keys, values, length) = (from.keys.len(), from.values.len(), from.length);
            return Err(refused(format!(
                "{keys} keys and {values} values are not the {expected} of {length} positions"
            )));
        }
        match start > written {
            true => Err(refused(format!("position {start} is beyond the {written} of layer {layer}"))),
            false => self.check_room(start.saturating_add(from.length)),
        }
    }

    /// Refuses a length that some layer does not have; `written` are the positions of each layer.
    pub fn check_length(&self, length: usize, written: impl Iterator<Item = usize>) -> Result<(), ModelError> {
        match written.enumerate().find(|(_, written)| *written < length) {
            Some((at, written)) => {
                Err(refused(format!("layer {at} of the cache has {written} positions and not {length}")))
            }
            None => Ok(()),
        }
    }
}

fn refused(reason: String) -> ModelError {
    ModelError::Refused(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attention, Dtype, GraphMode, Marks};

    fn rules(room: Room) -> CacheRules {
        let config = Config::from_preset("tiny").unwrap();
        let (dtype, attention, graph, marks) = (Dtype::F32, Attention::Dense, GraphMode::Auto, Marks::default());
        CacheRules::new(&config, &Options { dtype, attention, batch: 1, room, graph, marks, kept: None, offload: None })
    }

    #[test]
    fn a_cache_holds_no_more_than_the_model_or_what_was_asked_for() {
        assert_eq!((rules(Room::Growing).most, rules(Room::Static(7)).most), (512, 7));
        assert!(rules(Room::Static(7)).check_room(7).is_ok());
        let error = rules(Room::Static(7)).check_room(8).unwrap_err().to_string();
        assert!(error.contains("the cache"), "{error}");
        assert!(rules(Room::Static(9999)).check_room(513).unwrap_err().to_string().contains("tiny"));
    }

    #[test]
    fn what_is_written_must_fit_and_leave_no_hole() {
        let rules = rules(Room::Growing);
        let some = |length: usize| KeysValues {
            length,
            keys: vec![0.0; length * rules.width],
            values: vec![0.0; length * rules.width],
        };
        assert!(rules.check_write(0, 4, 4, &some(2)).is_ok());
        assert!(rules.check_write(0, 4, 5, &some(2)).unwrap_err().to_string().contains("position 5 is beyond the 4"));
        assert!(rules.check_write(0, 4, 0, &KeysValues { length: 3, ..some(2) }).is_err());
        assert!(rules.check_write(0, 600, 512, &some(1)).is_err(), "there is no room for it");
        assert!(rules.check_layer(1).is_ok() && rules.check_layer(2).is_err());
    }

    #[test]
    fn a_length_is_one_that_every_layer_has() {
        let rules = rules(Room::Growing);
        assert!(rules.check_length(3, [3, 4].into_iter()).is_ok());
        let error = rules.check_length(4, [4, 3].into_iter()).unwrap_err().to_string();
        assert_eq!(error, "layer 1 of the cache has 3 positions and not 4");
    }
}
