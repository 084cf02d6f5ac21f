//! What stages have to do, counted as the work of a pass is (`work.rs`).
//!
//! Of embeddings and codebooks only the rows that are looked up are read; weights are read once a pass, so fifteen times
//! in a frame by the code predictor. Of the codec every convolution and product is counted, activations and norms are not.

use std::ops::Range;

use super::tensors::{ConvTensors, Linear};
use super::{Part, TtsConfig, chunks, count::CodecCount};
use crate::{Attention, Dtype, PassWork, Stage, StageWork, TensorSpec, decoder::count::Counted, work::Pass};

impl TtsConfig {
    /// The work of each stage of a synthesis, in order, by the name that it is marked with: for a prompt of this many
    /// positions and tokens that follow, and this many frames, which are decoded at once or in chunks.
    pub fn stage_work(
        &self,
        [positions, following]: [usize; 2],
        frames: usize,
        chunk: Option<usize>,
        dtype: Dtype,
    ) -> [(&'static str, StageWork); 5] {
        let all = |works: &mut dyn Iterator<Item = StageWork>| works.fold(StageWork::default(), StageWork::plus);
        let (predictor, sampling) = (self.code_predictor_work(dtype), self.sampling_work());
        // The talker does not run after the last frame.
        let steps = &mut (1..frames).map(|frame| self.talker_step_work(positions + frame - 1, dtype));
        let chunk = chunk.unwrap_or(frames).max(1);
        let starts = (0..frames).step_by(chunk);
        let decode = &mut starts.map(|at| self.decode_work(at..at.saturating_add(chunk).min(frames), dtype));
        [
            ("prefill", self.prefill_work(positions, following, dtype)),
            ("code_predictor", all(&mut (0..frames).map(|_| predictor))),
            ("talker_step", all(steps)),
            ("sampling", all(&mut (0..frames).map(|_| sampling))),
            ("decode", all(decode)),
        ]
    }

    /// The work of running a prompt of this many positions. All of its text is brought to the talker's width, that which
    /// follows frame by frame and the one that stands for none too.
    pub fn prefill_work(&self, positions: usize, following: usize, dtype: Dtype) -> StageWork {
        let pass = self.talker.prefill_work(1, positions, 0, Attention::Dense, dtype);
        pass.total().plus(self.text_work(positions.saturating_add(following).saturating_add(1), dtype))
    }

    /// The work of a step of the talker behind this many positions.
    pub fn talker_step_work(&self, position: usize, dtype: Dtype) -> StageWork {
        let pass = self.talker.step_work(1, position, dtype);
        // The step counts one row; a frame is the sum of as many as it has codes.
        let rows = bytes((self.predicted() as u64).saturating_mul(self.talker.hidden as u64), dtype);
        pass.total().plus(StageWork { weight_bytes: rows, ..StageWork::default() })
    }

    /// The work of choosing the codes of a frame but the first.
    pub fn code_predictor_work(&self, dtype: Dtype) -> StageWork {
        let first = self.predictor.prefill_work(1, 2, 0, Attention::Dense, dtype);
        let steps = (2..=self.predicted()).map(|position| self.predictor.step_work(1, position, dtype));
        let passes = steps.fold(first, |all, step| all.plus(&step));
        let rows = 1 + self.predicted() as u64;
        without_embedding(&passes).plus(self.bridge_work(rows, dtype))
    }

    /// The work of choosing a semantic code: its logits and two masks are read. Comparing is not counted as operations.
    pub fn sampling_work(&self) -> StageWork {
        let read = (self.talker.vocab as u64).saturating_mul(4 + 1 + 1);
        StageWork { kv_read: read, ..StageWork::default() }
    }

    /// The work of making audio of some frames, those before them that are decoded too included.
    pub fn decode_work(&self, frames: Range<usize>, dtype: Dtype) -> StageWork {
        let (weights, _) = self.codec_specs();
        let chunk = |frames: usize| {
            let counted = CodecCount::run(self, &weights, frames, dtype).counted;
            counted.work.plus(self.transformer_work(frames, dtype))
        };
        chunks(frames).map(|frames| chunk(frames.frames.len())).fold(StageWork::default(), StageWork::plus)
    }

    fn text_work(&self, rows: usize, dtype: Dtype) -> StageWork {
        let (talker, ..) = self.talker_specs();
        let mut work = Counted::new(dtype);
        work.read_numbers(&[rows, self.text_width]);
        work.layer(&talker.text_up, rows);
        work.layer(&talker.text_down, rows);
        work.work
    }

    fn bridge_work(&self, rows: u64, dtype: Dtype) -> StageWork {
        let mut work = Counted::new(dtype);
        work.read_numbers(&[rows as usize, self.talker.hidden]);
        if let Some(bridge) = self.talker_specs().1.bridge {
            // Two rows run together, all others one by one.
            work.layer(&bridge, 2);
            (2..rows).for_each(|_| work.layer(&bridge, 1));
        }
        work.work
    }

    fn transformer_work(&self, frames: usize, dtype: Dtype) -> StageWork {
        let config = self.part(Part::Codec);
        let window = self.codec.window.min(frames) as u64;
        let pairs = window * (window + 1) / 2 + (frames as u64).saturating_sub(window).saturating_mul(window);
        let pass =
            Pass { batch: 1, tokens: frames, start: 0, logits: 0, is_cached: false, attention: Attention::Dense };
        without_embedding(&config.pass_work(pass, dtype).with_pairs(config, 1, pairs))
    }
}

fn without_embedding(pass: &PassWork) -> StageWork {
    let all = pass.total();
    StageWork { weight_bytes: all.weight_bytes - pass.stage(Stage::Embed).weight_bytes, ..all }
}

fn bytes(numbers: u64, dtype: Dtype) -> u64 {
    numbers.saturating_mul(dtype.bytes())
}

impl Counted {
    /// A linear layer of the table of weights.
    pub(crate) fn layer(&mut self, linear: &Linear<Vec<TensorSpec>>, rows: usize) {
        self.product(&linear.weight, rows as u64);
        self.read(&linear.bias);
    }

    /// `rows` are those that come out, or that go in where it lengthens.
    pub(crate) fn conv(&mut self, conv: &ConvTensors, rows: u64) {
        self.product([&conv.weight], rows);
        self.read([&conv.bias]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TtsConfig {
        TtsConfig::from_preset("0.6b").unwrap()
    }

    #[test]
    fn a_frame_reads_the_talker_once_and_the_predictor_fifteen_times() {
        let config = config();
        let step = config.talker_step_work(0, Dtype::Bf16);
        // Layers and norm, head, and sixteen rows of codes.
        assert_eq!(step.weight_bytes, 2 * (440_467_456 + 3072 * 1024 + 16 * 1024));
        let predictor = config.code_predictor_work(Dtype::Bf16);
        assert_eq!(predictor.weight_bytes, 2 * (15 * 78_655_744 + 15 * 2048 * 1024 + 16 * 1024));
        let wide = TtsConfig::from_preset("1.7b").unwrap().code_predictor_work(Dtype::Bf16);
        let bridge = 15 * (2048 * 1024 + 1024) + 16 * 1024;
        assert_eq!(wide.weight_bytes, predictor.weight_bytes + 2 * bridge);
        let matrices = |norms: u64, body: u64| 2 * (body - norms);
        let norms = 28 * (2 * 1024 + 2 * 128) + 1024;
        assert_eq!(step.flops, matrices(norms, 440_467_456) + 2 * 3072 * 1024 + 4 * 28 * 2048);
        let text = 2048 * 2048 + 2048 + 2048 * 1024 + 1024;
        let prefill = config.prefill_work(10, 4, Dtype::Bf16);
        assert_eq!(prefill.weight_bytes, 2 * (440_467_456 + 3072 * 1024 + 10 * 1024 + text + 15 * 2048));
    }

    #[test]
    fn a_frame_of_audio_takes_what_its_convolutions_take() {
        let config = config();
        let work = |frames| config.decode_work(frames, Dtype::F32);
        let one = work(0..1);
        let per_unit = |channels: u64| 3 * 8 * channels * channels;
        let blocks = 2 * 1536 * 768 * 8 * 4
            + per_unit(768) * 32
            + 2 * 768 * 384 * 5 * 32
            + per_unit(384) * 160
            + 2 * 384 * 192 * 4 * 160
            + per_unit(192) * 640
            + 2 * 192 * 96 * 3 * 640
            + per_unit(96) * 1920;
        let next = (1 + 2) * 2 * 1024 * 1024 + (2 + 4) * (7 * 1024 + 8 * 1024 * 1024);
        let front = 2 * 512 * 256 + 3 * 512 * 1024 + 2 * 1024 * 512;
        let layers = 8 * (4 * 512 * 1024 + 3 * 512 * 1024 + 2 * 1024);
        let ends = 7 * 1024 * 1536 * 4 + 7 * 96 * 1920;
        assert_eq!(one.flops, 2 * (blocks + next + front + layers + ends));
        assert_eq!(work(0..300).weight_bytes, one.weight_bytes + 299 * 16 * 256 * 4);
        assert!(work(300..400).flops > work(0..100).flops, "what comes before is decoded too");
        assert_eq!(work(5..5), StageWork::default());
        assert!(one.weight_bytes < crate::tensors::checked_count(&config.codec_file_tensors()).unwrap() * 4);
    }
}
