//! Whether streamed audio is generated in time for playback.

use laptime_models::tts::Ready;

/// The playback that starts with the first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Playback {
    /// Frames that are late for playback.
    pub late: usize,
    /// The playback delay that would avoid late frames.
    pub buffer_ns: u64,
}

/// Plays from the first chunk on at a fixed frame time: frame `i` is due `i` frame times after the first.
pub fn playback(chunks: &[Ready], frame_ns: u64) -> Option<Playback> {
    let first = chunks.first()?.at_ns;
    let (mut played, mut playback) = (0_usize, Playback::default());
    for chunk in chunks {
        for frame in played..chunk.frames {
            let due = first.saturating_add(frame_ns.saturating_mul(frame as u64));
            let behind = chunk.at_ns.saturating_sub(due);
            playback.late += usize::from(behind > 0);
            playback.buffer_ns = playback.buffer_ns.max(behind);
        }
        played = played.max(chunk.frames);
    }
    Some(playback)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ready(frames: usize, at_ns: u64) -> Ready {
        Ready { frames, at_ns }
    }

    #[test]
    fn nothing_is_late_that_is_made_faster_than_it_plays() {
        let chunks = [ready(4, 100), ready(8, 300), ready(10, 420)];
        assert_eq!(playback(&chunks, 80), Some(Playback { late: 0, buffer_ns: 0 }));
        assert_eq!(playback(&[], 80), None);
    }

    #[test]
    fn a_frame_is_late_that_is_not_there_when_it_is_due() {
        // Frame 4 is due at 100 + 4 * 80 = 420, frame 5 at 500, frame 6 at 580; all are there at 510.
        let chunks = [ready(4, 100), ready(7, 510)];
        assert_eq!(playback(&chunks, 80), Some(Playback { late: 2, buffer_ns: 90 }));
        assert_eq!(playback(&[ready(4, 100), ready(5, 420)], 80), Some(Playback::default()), "due and there at once");
    }

    proptest! {
        #[test]
        fn who_waits_for_the_buffer_hears_no_frame_late(lengths in prop::collection::vec((1_usize..8, 0_u64..900), 1..20)) {
            let (mut frames, mut at_ns, mut chunks) = (0, 0, Vec::new());
            for (more, later) in lengths {
                frames += more;
                at_ns += later;
                chunks.push(ready(frames, at_ns));
            }
            let first = playback(&chunks, 80).unwrap();
            let mut later = chunks.clone();
            later[0].at_ns += first.buffer_ns;
            later.iter_mut().for_each(|chunk| chunk.at_ns = chunk.at_ns.max(chunks[0].at_ns + first.buffer_ns));
            prop_assert_eq!(playback(&later, 80).unwrap().late, 0);
        }
    }
}
