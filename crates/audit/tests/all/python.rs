//! Host syncs in Python sources with known answers.

use laptime_audit::{Audited, Certainty, Rule, Rules, audit_python};

fn audited(text: &str) -> Audited {
    let audited = audit_python(text, &Rules::built_in());
    assert_eq!(audited.problem, None, "{text}");
    audited
}

fn calls(text: &str) -> Vec<String> {
    audited(text).sites.into_iter().map(|site| site.call).collect()
}

fn depth(text: &str) -> u32 {
    let audited = audited(text);
    assert_eq!(audited.sites.len(), 1, "{text}: {:?}", audited.sites);
    audited.sites[0].loop_depth
}

const NONE: [&str; 0] = [];

#[test]
fn a_site_has_its_line_its_function_and_its_loops() {
    let text = "class Trainer:
    @no_grad
    def step(self, batches):
        for batch in batches:
            while more:
                total += (
                    loss
                    .item()
                )
        def log(): print(total.cpu())
x.tolist()
";
    let audited = audited(text);
    let found: Vec<_> = audited
        .sites
        .iter()
        .map(|site| (site.line, site.call.as_str(), site.function.as_str(), site.loop_depth))
        .collect();
    let expected = [(8, "item", "Trainer.step", 2), (10, "cpu", "Trainer.step.log", 0), (11, "tolist", "", 0)];
    assert_eq!(found, expected);
    assert_eq!((audited.sites[0].column, audited.sites[0].function_lines), (22, (2, 10)));
    assert_eq!(audited.sites[2].certainty, Certainty::Likely);
}

#[test]
fn reads_are_recognised_by_name_and_arguments() {
    assert_eq!(calls("x.item(); x.cpu(); x.tolist(); x.numpy()"), ["item", "cpu", "tolist", "numpy"]);
    assert_eq!(calls("x.item(3); item(x); x.items(); x.item; cpu(); x.data_ptr()"), NONE);
    assert_eq!(
        calls("x.to('cpu'); x.to(device=\"cpu\"); x.to(torch.device('cpu'), torch.float32)"),
        ["to(\"cpu\")"; 3]
    );
    assert_eq!(calls("x.to('cuda'); x.to(torch.float16); x.to(dtype=y); x.to('cpu', non_blocking=True)"), NONE);
    assert_eq!(audited("x.to(device); x.to(self.device); x.to(y.device)").unknown, 3);
}

#[test]
fn functions_are_resolved_by_imports() {
    assert_eq!(
        calls("import torch\ntorch.cuda.synchronize()\ntorch.nonzero(x)"),
        ["torch.cuda.synchronize", "torch.nonzero"]
    );
    assert_eq!(calls("import torch as th\nth.unique(x)"), ["torch.unique"]);
    assert_eq!(calls("from torch import cuda as c\nc.synchronize()"), ["torch.cuda.synchronize"]);
    assert_eq!(calls("from torch.cuda import synchronize\nsynchronize()"), ["torch.cuda.synchronize"]);
    assert_eq!(calls("stream.synchronize(); torch.cuda.Event().synchronize()"), ["synchronize"; 2]);
    assert_eq!(calls("import torch\ntorch.mtia.synchronize()"), ["torch.mtia.synchronize"]);
    assert_eq!(calls("import numpy as np\nnp.unique(x)\nnp.nonzero(x)\nif np.any(x): pass"), NONE);
    assert_eq!(calls("torch.where(a); torch.where(a, b, c)"), ["torch.where"]);
}

#[test]
fn the_truth_value_of_a_tensor_is_a_likely_sync() {
    assert_eq!(
        calls("if x.any(): pass\nwhile not (x == y).all(): pass"),
        ["if any()"; 1].into_iter().chain(["if all()"]).collect::<Vec<_>>()
    );
    assert_eq!(calls("y = 1 if torch.any(x) else 2\nassert x.max() < 3"), ["if any()", "if max()"]);
    assert_eq!(
        calls("bool(x.any()); int(x.argmax()); float(x.mean())"),
        ["bool(any())", "int(argmax())", "float(mean())"]
    );
    assert_eq!(calls("if any(x): pass\ny = x.any()\nf(x.max())\nint(max(x))\nx.all() if a else b"), NONE);
    assert_eq!(audited("if x.any(): pass").sites[0].certainty, Certainty::Likely);
}

#[test]
fn calls_on_the_result_of_a_read_are_not_sites() {
    assert_eq!(calls("x.detach().cpu().float().numpy()"), ["cpu"]);
    assert_eq!(calls("x.to('cpu')[0].item()"), ["to(\"cpu\")"]);
    assert_eq!(calls("x.sum().item() + y.cpu()"), ["item", "cpu"]);
    assert_eq!(calls("import numpy as np\nnp.random.rand(1).item()\nnp.where(x)[0].tolist()"), NONE);
    assert_eq!(calls("torch.linspace(0, 1, 9, device='cpu').tolist()"), NONE, "it was made on the host");
    assert_eq!(calls("if x.all().item(): pass"), ["item"]);
}

#[test]
fn comprehensions_and_mapped_lambdas_are_loops() {
    assert_eq!(depth("[x.item() for x in xs]"), 1);
    assert_eq!(depth("{k: v for k, v in x.tolist()}"), 0, "what is gone through is read once");
    assert_eq!(depth("sum(y for x in xs for y in x.tolist())"), 1);
    assert_eq!(depth("[x for x in xs if x.item()]"), 1);
    assert_eq!(depth("list(map(lambda x: x.item(), xs))"), 1);
    assert_eq!(depth("sorted(xs, key=lambda x: x.item())"), 1);
    assert_eq!(depth("f(lambda x: x.item())"), 0);
    assert_eq!(depth("for x in y.tolist(): pass"), 0);
    assert_eq!(depth("while x.item(): pass"), 1);
    assert_eq!(depth("for x in y: pass\nelse: x.item()"), 0);
    assert_eq!(depth("async def f():\n  async for x in y:\n    x.item()"), 1);
}

#[test]
fn a_comment_allows_a_site() {
    let allowed = |text: &str| audited(text).sites[0].allowed.clone();
    assert_eq!(allowed("x.item()  # sync: allowed, once").as_deref(), Some("once"));
    assert_eq!(allowed("# sync: allowed - why\r\nx.item()\r\n").as_deref(), Some("why"));
    assert_eq!(allowed("# sync: allowed\ny = (\n  x\n  .item())").as_deref(), Some(""));
    assert_eq!(allowed("# sync: allowed\nfor x in y:\n  x.item()"), None);
    assert_eq!(allowed("print('# sync: allowed', x.item())"), None, "this is a text");
}

#[test]
fn a_user_adds_calls() {
    let mut rules = Rules::built_in();
    rules.add(Rule::named("read_back"));
    rules.add(Rule::named("xm.mark_step"));
    let audited = audit_python("read_back(x)\nx.read_back()\nxm.mark_step()\ny.mark_step()", &rules);
    assert_eq!(audited.sites.iter().map(|site| site.line).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn syntax_errors_are_reported_and_the_rest_is_read() {
    let audited = audit_python("x.item()\ndef f(:\n  pass\ny.cpu()\n", &Rules::built_in());
    assert_eq!(audited.problem.and_then(|problem| problem.line), Some(2));
    assert!(audited.sites.iter().any(|site| site.call == "item"));
}

#[test]
fn deep_nesting_ends_in_an_answer() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("x if y else ", ""), ("f(", ")"), ("x + ", "")]
    {
        let text = format!("{}x.item(){}\n", open.repeat(100_000), close.repeat(100_000));
        let audited = audit_python(&text, &Rules::built_in());
        assert!(audited.sites.len() == 1 || audited.problem.is_some(), "{open}");
    }
    let chain = format!("x{}\n", ".cpu()".repeat(20_000));
    assert!(!audit_python(&chain, &Rules::built_in()).sites.is_empty());
    let blocks: String = (0..10_000).map(|at: usize| " ".repeat(at.min(500)) + "if x:\n").collect();
    audit_python(&blocks, &Rules::built_in());
}
