//! The weights of a decoder on any device. One table maps published tensors to the parts of a layer.

use std::ops::Range;

use crate::{Config, ModelError, TensorSpec};

/// A matrix, or a vector such as a norm weight or a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<M, V> {
    Matrix(M),
    Vector(V),
}

/// Declares the parts of a layer and the published tensors that each packs.
macro_rules! layer_parts {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $kind:ident [$($tensor:literal),*],)*) => {
        /// The weights of one layer. Matrices that multiply the same input are packed into one.
        #[derive(Debug)]
        pub struct LayerWeights<M, V = M> {
            $($(#[$doc])* pub $field: $type,)*
        }

        /// The published tensors that each part of a layer packs, in the order of the fields of [`LayerWeights`].
        const PACKED: &[&[&str]] = &[$(&[$($tensor),*]),*];

        /// The number of parts of a layer.
        pub const PARTS: usize = PACKED.len();

        impl<M, V> LayerWeights<M, V> {
            pub fn load<L: Load<Matrix = M, Vector = V>>(
                tensors: &[TensorSpec],
                loader: &mut L,
            ) -> Result<Self, L::Error> {
                let [$($field),*] = packed_tensors(tensors);
                Ok(Self { $($field: layer_parts!(@load $kind loader $field),)* })
            }

            pub fn parts(&self) -> [Option<Part<&M, &V>>; PARTS] {
                [$(layer_parts!(@part $kind (&self.$field) as_ref),)*]
            }

            pub fn parts_mut(&mut self) -> [Option<Part<&mut M, &mut V>>; PARTS] {
                [$(layer_parts!(@part $kind (&mut self.$field) as_mut),)*]
            }
        }
    };
    (@load optional $loader:ident $tensors:ident) => {
        if $tensors.is_empty() { None } else { Some($loader.vector(&$tensors)?) }
    };
    (@load $kind:ident $loader:ident $tensors:ident) => { $loader.$kind(&$tensors)? };
    (@part matrix ($part:expr) $borrow:ident) => { Some(Part::Matrix($part)) };
    (@part vector ($part:expr) $borrow:ident) => { Some(Part::Vector($part)) };
    (@part optional ($part:expr) $borrow:ident) => { ($part).$borrow().map(Part::Vector) };
}

layer_parts! {
    attention_norm: V, vector ["input_layernorm.weight"],
    /// Queries, then keys, then values.
    qkv: M, matrix ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"],
    qkv_bias: Option<V>, optional ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"],
    query_norm: Option<V>, optional ["self_attn.q_norm.weight"],
    key_norm: Option<V>, optional ["self_attn.k_norm.weight"],
    output: M, matrix ["self_attn.o_proj.weight"],
    ffn_norm: V, vector ["post_attention_layernorm.weight"],
    /// Gate, then up.
    gate_up: M, matrix ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
    gate_up_bias: Option<V>, optional ["mlp.gate_proj.bias", "mlp.up_proj.bias"],
    down: M, matrix ["mlp.down_proj.weight"],
    down_bias: Option<V>, optional ["mlp.down_proj.bias"],
    /// The norms of the outputs of attention and FFN.
    attention_post_norm: Option<V>, optional [],
    ffn_post_norm: Option<V>, optional [],
}

/// All weights of a decoder, or their gradients or optimizer moments.
#[derive(Debug)]
pub struct Parameters<M, V = M> {
    pub embedding: M,
    pub layers: Vec<LayerWeights<M, V>>,
    pub norm: V,
    /// The output head, unless it is tied to the embedding.
    pub own_head: Option<M>,
}

/// The norms of a layer with post-norms, by index: before the FFN, after attention, after the FFN.
const POST_NORMED: [(usize, &[&str]); 3] = [
    (6, &["pre_feedforward_layernorm.weight"]),
    (11, &["post_attention_layernorm.weight"]),
    (12, &["post_feedforward_layernorm.weight"]),
];

/// Loads published tensors on a device.
pub trait Load {
    type Matrix;
    type Vector;
    type Error;

    /// Loads matrices of one width, stacked.
    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<Self::Matrix, Self::Error>;

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<Self::Vector, Self::Error>;
}

/// Loads published tensors on a device where matrices and vectors have one type.
pub trait LoadAlike {
    type Part;
    type Error;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Self::Part, Self::Error>;
}

impl<P, E, F: FnMut(&[TensorSpec]) -> Result<P, E>> LoadAlike for F {
    type Part = P;
    type Error = E;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<P, E> {
        self(tensors)
    }
}

impl<L: LoadAlike> Load for L {
    type Matrix = L::Part;
    type Vector = L::Part;
    type Error = L::Error;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<L::Part, L::Error> {
        self.part(tensors)
    }

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<L::Part, L::Error> {
        self.part(tensors)
    }
}

/// The tensors of a layer, grouped by part. Parts that the model lacks are empty.
pub fn packed_tensors(layer: &[TensorSpec]) -> [Vec<TensorSpec>; PARTS] {
    let find = |name: &&str| layer.iter().find(|tensor| tensor.name.ends_with(name)).cloned();
    let mut packed: [&[&str]; PARTS] = std::array::from_fn(|part| PACKED[part]);
    if POST_NORMED.iter().all(|(_, names)| names.iter().all(|name| find(name).is_some())) {
        POST_NORMED.into_iter().for_each(|(part, names)| packed[part] = names);
    }
    packed.map(|names| names.iter().filter_map(find).collect())
}

impl<M, V> Parameters<M, V> {
    /// Loads all weights but those of the layers before `first`.
    pub fn load<L: Load<Matrix = M, Vector = V>>(
        config: &Config,
        first: usize,
        loader: &mut L,
    ) -> Result<Self, L::Error> {
        Ok(Self {
            embedding: loader.matrix(&[config.embedding_tensor()])?,
            layers: load_layers(config, first, loader)?,
            norm: loader.vector(&[config.final_norm_tensor()])?,
            own_head: config.head_tensor().map(|head| loader.matrix(&[head])).transpose()?,
        })
    }

    pub fn head(&self) -> &M {
        self.own_head.as_ref().unwrap_or(&self.embedding)
    }

    pub fn head_mut(&mut self) -> &mut M {
        self.own_head.as_mut().unwrap_or(&mut self.embedding)
    }

    /// All parts, in an order that is the same for weights, gradients and moments.
    pub fn parts(&self) -> impl Iterator<Item = Part<&M, &V>> {
        let layers = self.layers.iter().flat_map(LayerWeights::parts).flatten();
        let ends = [Part::Matrix(&self.embedding), Part::Vector(&self.norm)];
        ends.into_iter().chain(self.own_head.as_ref().map(Part::Matrix)).chain(layers)
    }

    pub fn parts_mut(&mut self) -> impl Iterator<Item = Part<&mut M, &mut V>> {
        let layers = self.layers.iter_mut().flat_map(LayerWeights::parts_mut).flatten();
        let ends = [Part::Matrix(&mut self.embedding), Part::Vector(&mut self.norm)];
        ends.into_iter().chain(self.own_head.as_mut().map(Part::Matrix)).chain(layers)
    }

    /// The part that contains a published tensor, and its range in the part.
    pub fn find(&self, config: &Config, tensor: &TensorSpec) -> Result<(Part<&M, &V>, Range<usize>), ModelError> {
        let unknown = || ModelError::Refused(format!("`{}` has no tensor `{}`", config.name, tensor.name));
        let whole = 0..tensor.count();
        match tensor.name.as_str() {
            "model.embed_tokens.weight" => Ok((Part::Matrix(&self.embedding), whole)),
            "model.norm.weight" => Ok((Part::Vector(&self.norm), whole)),
            "lm_head.weight" => self.own_head.as_ref().map(|head| (Part::Matrix(head), whole)).ok_or_else(unknown),
            name => self.find_in_layer(config, name).ok_or_else(unknown),
        }
    }

    fn find_in_layer(&self, config: &Config, name: &str) -> Option<(Part<&M, &V>, Range<usize>)> {
        let (layer, _) = name.strip_prefix("model.layers.")?.split_once('.')?;
        let layer = layer.parse::<usize>().ok()?;
        let parts = self.layers.get(layer)?.parts();
        packed_tensors(&config.layer_tensors(layer)).iter().zip(parts).find_map(|(tensors, part)| {
            let at = tensors.iter().position(|tensor| tensor.name == name)?;
            let begin = tensors[..at].iter().map(TensorSpec::count).sum();
            Some((part?, begin..begin + tensors[at].count()))
        })
    }
}

#[derive(Debug)]
pub struct Body<M, V = M> {
    pub layers: Vec<LayerWeights<M, V>>,
    pub norm: V,
}

impl<M, V> Body<M, V> {
    pub fn load<L: Load<Matrix = M, Vector = V>>(
        config: &Config,
        first: usize,
        loader: &mut L,
    ) -> Result<Self, L::Error> {
        Ok(Self { layers: load_layers(config, first, loader)?, norm: loader.vector(&[config.final_norm_tensor()])? })
    }
}

pub type LoadedLayers<L> = Vec<LayerWeights<<L as Load>::Matrix, <L as Load>::Vector>>;

pub fn load_layers<L: Load>(config: &Config, first: usize, loader: &mut L) -> Result<LoadedLayers<L>, L::Error> {
    (first..config.layers).map(|layer| LayerWeights::load(&config.layer_tensors(layer), loader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the names of loaded tensors.
    struct Names;

    impl LoadAlike for Names {
        type Part = Vec<String>;
        type Error = ModelError;

        fn part(&mut self, tensors: &[TensorSpec]) -> Result<Vec<String>, ModelError> {
            Ok(tensors.iter().map(|tensor| tensor.name.clone()).collect())
        }
    }

    #[test]
    fn every_published_tensor_of_every_preset_is_loaded_once() {
        for config in Config::presets() {
            let parameters = Parameters::load(&config, 0, &mut Names).unwrap();
            let mut loaded: Vec<String> = parameters
                .parts()
                .flat_map(|part| match part {
                    Part::Matrix(names) | Part::Vector(names) => names.clone(),
                })
                .collect();
            let mut published: Vec<String> = config.tensors().into_iter().map(|tensor| tensor.name).collect();
            loaded.sort();
            published.sort();
            assert_eq!(loaded, published, "{}", config.name);
        }
    }

    #[test]
    fn a_tensor_is_found_in_the_part_that_packs_it() {
        let config = Config::from_preset("tiny-qwen2").unwrap();
        let parameters = Parameters::load(&config, 0, &mut Names).unwrap();
        for tensor in config.tensors() {
            let (part, range) = parameters.find(&config, &tensor).unwrap();
            let (Part::Matrix(names) | Part::Vector(names)) = part;
            assert!(names.contains(&tensor.name) && range.len() == tensor.count(), "{}", tensor.name);
        }
        let bias = TensorSpec { name: "model.layers.1.self_attn.v_proj.bias".to_owned(), ..config.embedding_tensor() };
        let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        assert_eq!(parameters.find(&config, &bias).unwrap().1, q + kv..q + 2 * kv);
        let unknown = TensorSpec { name: "model.layers.9.mlp.down_proj.weight".to_owned(), ..bias };
        let error = parameters.find(&config, &unknown).unwrap_err().to_string();
        assert_eq!(error, "`tiny-qwen2` has no tensor `model.layers.9.mlp.down_proj.weight`");
    }
}
