//! Fusers whose numbers are all of one type.

use super::{
    super::{crew::Crew, model::Source, number::Number},
    model::Projectors,
    path::{Buffers, Heads, Run, Sizes},
};
use crate::{
    Decoder, KeysValues, ModelError,
    fuser::{
        CacheShape, FuseMode, FuseOptions, FuseOrder, Fused, FuserConfig, FuserWeights, Fusing, Gates, Path, Section,
        check_section,
    },
    marks::stage_mark,
};

/// Fusers whose numbers are all of one type.
pub struct Engine<T> {
    configs: Vec<FuserConfig>,
    options: FuseOptions,
    gates: Vec<Gates>,
    projectors: Vec<Projectors<T>>,
    crew: Crew,
    buffers: Buffers<T>,
}

impl<T: Number> Engine<T> {
    /// Puts the weights of open paths into memory.
    pub fn new(
        fusers: Vec<(FuserConfig, &FuserWeights)>,
        options: FuseOptions,
        threads: usize,
    ) -> Result<Self, ModelError> {
        let crew = Crew::new(threads)?;
        let gates: Vec<Gates> =
            fusers.iter().map(|(config, weights)| weights.gates(config)).collect::<Result<_, _>>()?;
        let load = |((config, weights), gates): (&(FuserConfig, &FuserWeights), &Gates)| {
            Projectors::load(config, gates, Source { weights: Some(*weights), crew: &crew })
        };
        let projectors = fusers.iter().zip(&gates).map(load).collect::<Result<_, _>>()?;
        let configs = fusers.into_iter().map(|(config, _)| config).collect();
        Ok(Self { configs, options, gates, projectors, crew, buffers: Buffers::default() })
    }

    /// Makes room, or refuses before anything is computed.
    fn make_ready(&mut self, section: &Section, rows: usize) -> Result<(), ModelError> {
        for (_, config) in self.configs.iter().enumerate().filter(|(at, _)| section.mask.has(*at)) {
            self.buffers.fit(&Sizes::new(config, rows))?;
        }
        Ok(())
    }

    /// Fuses one layer of the receiver with everybody who is heard.
    fn fuse_layer(
        &mut self,
        layer: usize,
        receiver: &mut dyn Decoder,
        sharers: &mut [&mut dyn Decoder],
        section: &Section,
    ) -> Result<(), ModelError> {
        let heard: Vec<usize> = (0..self.configs.len()).filter(|at| self.hears(*at, layer, section)).collect();
        if heard.is_empty() {
            return Ok(());
        }
        let clean = receiver.read_positions(layer, section.positions.clone())?;
        let mut fused = clean.clone();
        for at in heard {
            let start = section.sharer_starts[at];
            let heard_layer = self.configs[at].pairs[layer].sharer_layer;
            let heard = sharers[at].read_positions(heard_layer, start..start + clean.length)?;
            for path in Path::ALL {
                self.fuse_path(Place { sharer: at, layer, path }, &heard, &clean, &mut fused);
            }
        }
        receiver.write_cache(layer, section.positions.start, &fused)
    }

    /// Whether a layer hears a sharer in a section.
    fn hears(&self, sharer: usize, layer: usize, section: &Section) -> bool {
        section.mask.has(sharer) && Path::ALL.into_iter().any(|path| self.gates[sharer].is_open(layer, path))
    }

    /// Adds what one path makes, if its gate is open.
    fn fuse_path(&mut self, place: Place, heard: &KeysValues, clean: &KeysValues, fused: &mut KeysValues) {
        let Place { sharer, layer, path } = place;
        let _stage = self.mark(place);
        let config = &self.configs[sharer];
        let Some(weights) = self.projectors[sharer].path(config.pairs[layer].projector, path) else { return };
        let to = match path {
            Path::Keys => &mut fused.keys,
            Path::Values => &mut fused.values,
        };
        let there = match self.options.mode {
            FuseMode::Sequential => to.clone(),
            FuseMode::Parallel => numbers(clean, path).to_vec(),
        };
        let heads = |numbers, shape: &CacheShape| {
            let CacheShape { kv_heads, head_dim, .. } = *shape;
            Heads { numbers, kv_heads, head_dim, length: clean.length }
        };
        let (heard, own) = (heads(numbers(heard, path), &config.sharer), heads(&there, &config.receiver));
        let (marks, rows) = (&self.options.marks, there.len() / config.receiver.width());
        Run { crew: &self.crew, marks, config, path: weights, rows }.add(&mut self.buffers, heard, own, to);
    }

    /// Marks a path that is open, where each is a stage of its own.
    fn mark(&self, Place { sharer, layer, path }: Place) -> Option<impl Sized + use<T>> {
        let marks = &self.options.marks;
        if self.options.order == FuseOrder::Batched || !self.gates[sharer].is_open(layer, path) {
            return None;
        }
        match path {
            Path::Keys => stage_mark!(marks, Pipeline, "fuse_keys", layer = layer, sharer = sharer),
            Path::Values => stage_mark!(marks, Pipeline, "fuse_values", layer = layer, sharer = sharer),
        }
    }
}

/// One path of a layer, for one sharer.
#[derive(Clone, Copy)]
struct Place {
    sharer: usize,
    layer: usize,
    path: Path,
}

fn numbers(of: &KeysValues, path: Path) -> &[f32] {
    match path {
        Path::Keys => &of.keys,
        Path::Values => &of.values,
    }
}

impl<T: Number> Fusing for Engine<T> {
    fn configs(&self) -> &[FuserConfig] {
        &self.configs
    }

    fn options(&self) -> &FuseOptions {
        &self.options
    }

    fn gates(&self) -> &[Gates] {
        &self.gates
    }

    fn fuse(
        &mut self,
        receiver: &mut dyn Decoder,
        sharers: &mut [&mut dyn Decoder],
        section: &Section,
    ) -> Result<Fused, ModelError> {
        check_section(self, receiver, sharers, section)?;
        let heard = self.gates.iter().enumerate().filter(|(at, _)| section.mask.has(*at));
        let fused = heard.map(|(_, gates)| Fused::of(gates)).fold(Fused::default(), Fused::plus);
        let (tokens, layers) = (section.positions.len(), fused.layers);
        if tokens == 0 {
            return Ok(Fused::default());
        }
        self.make_ready(section, tokens * receiver.options().batch)?;
        let marks = self.options.marks.clone();
        let _stage = stage_mark!(marks, Pipeline, "projector", tokens = tokens, layers = layers);
        for layer in 0..receiver.config().layers {
            self.fuse_layer(layer, receiver, sharers, section)?;
        }
        Ok(fused)
    }
}
