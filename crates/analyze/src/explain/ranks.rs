//! Notes about the ranks of a job: `laptime ranks`.

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
    Topic {
        id: "ranks-clocks",
        title: "clocks of ranks could not be aligned",
        rule: "Ranks of different hosts share no all-reduce, all-gather, reduce-scatter or barrier, directly or through other \
               ranks.",
        meaning: "No rank can leave these collectives before the last one has arrived, so they show how far clocks are apart. \
                  Broadcast, reduce, send and receive do not. Without them there is no skew, and no rank is called late.",
        remedy: "Record a step that contains an all-reduce of all ranks, such as the gradient norm.",
    },
    Topic {
        id: "ranks-input",
        title: "some ranks are missing or left out",
        rule: "A file cannot be read, is cut off, has no rank number, belongs to another job (other name, other number of ranks), \
               or contains a rank that another file contains too; or ranks of the job were not given.",
        meaning: "The other ranks are compared. With ranks missing, skew is a lower bound, and a missing rank may be the last one.",
        remedy: "Give the traces of all ranks of one job.",
    },
    Topic {
        id: "ranks-steps",
        title: "ranks recorded different steps",
        rule: "The numbers of the first and the last step differ from those of most ranks.",
        meaning: "Collectives are matched by their number within the communicator, or within a step where traces have no such \
                  numbers. Steps that only some ranks recorded are not compared.",
        remedy: "Record the same steps on all ranks: use one `torch.profiler.schedule` everywhere.",
    },
    Topic {
        id: "ranks-unmatched",
        title: "collectives could not be matched",
        rule: "A communication kernel has no communicator information, or more than 5 % of the collectives of a communicator \
               differ in kind between ranks.",
        meaning: "Collectives are never matched by the names of kernels. Those that are not matched count as communication of \
                  their rank, and have no skew.",
        remedy: "Record with PyTorch 2.4 or newer, which writes process groups to the trace, or with Nsight Systems and NCCL's \
                 NVTX ranges.",
    },
];
