//! Redacts secrets in command lines, and lists harmless environment variables.

/// Parts of names whose values are secrets.
const SECRET_NAMES: [&str; 9] =
    ["token", "secret", "password", "passwd", "api-key", "apikey", "api_key", "credential", "auth"];

/// Prefixes of well-known tokens.
const SECRET_PREFIXES: [&str; 8] = ["hf_", "sk-", "ghp_", "gho_", "github_pat_", "AKIA", "xoxb-", "Bearer "];

const REDACTED: &str = "***";

/// Variables that configure CUDA, PyTorch and the job.
const KEPT_VARIABLES: [&str; 26] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "LOCAL_RANK",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_DEBUG",
    "NCCL_P2P_DISABLE",
    "NCCL_PROTO",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "RANK",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TOKENIZERS_PARALLELISM",
    "WORLD_SIZE",
];

/// The arguments of a command, with secrets redacted.
pub fn arguments(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_value_of_secret = false;
    words
        .map(|word| {
            if std::mem::take(&mut is_value_of_secret) && !word.starts_with('-') {
                return REDACTED.to_owned();
            }
            match word.split_once('=') {
                Some((name, value)) if is_secret_name(name) && !value.is_empty() => format!("{name}={REDACTED}"),
                Some((name, value)) if is_secret_value(value) => format!("{name}={REDACTED}"),
                _ if is_secret_value(&word) => REDACTED.to_owned(),
                _ => {
                    is_value_of_secret = word.starts_with('-') && is_secret_name(&word);
                    without_password(word)
                }
            }
        })
        .collect()
}

/// The kept environment variables.
pub fn environment() -> Vec<(String, String)> {
    let kept = KEPT_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    kept.filter(|(_, value)| !is_secret_value(value)).collect()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // `--max-tokens 512` and `--tokenizer gpt2` are not secrets.
    let is_count = name.ends_with("tokens") || name.contains("tokenizer") || name.contains("token-id");
    !is_count && SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

fn is_secret_value(value: &str) -> bool {
    SECRET_PREFIXES.iter().any(|prefix| value.len() > prefix.len() + 8 && value.starts_with(prefix))
}

/// Redacts the password in a URL: `https://me:***@host/`.
fn without_password(word: String) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word };
    let Some((login, host)) = rest.split_once('@').filter(|(login, _)| !login.contains('/')) else { return word };
    match login.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:{REDACTED}@{host}"),
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(words: &[&str]) -> String {
        arguments(words.iter().map(|word| (*word).to_owned())).join(" ")
    }

    #[test]
    fn secrets_are_redacted() {
        for (given, expected) in [
            (&["run", "--api-key", "abc"][..], "run --api-key ***"),
            (&["run", "--hf-token=abc"], "run --hf-token=***"),
            (&["HF_TOKEN=abc", "run"], "HF_TOKEN=*** run"),
            (&["run", "hf_0123456789abcdef"], "run ***"),
            (&["run", "--key", "sk-0123456789abcdef"], "run --key ***"),
            (&["get", "https://me:pass@host/x"], "get https://me:***@host/x"),
        ] {
            assert_eq!(hidden(given), expected);
        }
    }

    #[test]
    fn other_arguments_are_unchanged() {
        for words in [
            &["python", "train.py", "--max-tokens", "512", "--tokenizer=gpt2"][..],
            &["run", "--token-ids", "1,2", "-m", "torch.distributed.run"],
            &["run", "--auth", "--verbose", "skate", "https://host/a@b"],
        ] {
            assert_eq!(hidden(words), words.join(" "));
        }
    }
}
