//! The cases of a request: defaults depend on the flag that names a model, on the model, and on the pass.

use laptime_bench::{
    AxisSpec, AxisValue, Case, Given, Plan, PlanError, axis_of, parse_values, refuse_too_many, resolve,
};
use laptime_models::{Attention, Config};

use super::axes::{COURSE_FLAGS, FOLDER_FLAG, aliases, axes};
use super::spec::{Pass, Test};
use crate::attention::{CUSTOM, of_pattern, pattern_axes, patterns, with_pattern_name};
use crate::request::{is_given, refused, words};

const NAME: &str = "model";

/// The default length of a forward pass or prefill, in tokens.
const TOKENS: usize = 512;
const DECODED: usize = 128;
const COURSE_BATCH: i64 = 4;

/// The reduced sizes of CS336 assignment 2 for small GPUs: name, tokens, sequences.
const REDUCED: [(&str, usize, i64); 2] = [("xl", 256, 2), ("2.7B", 128, 1)];
const OF_TESTS: [&str; 3] = ["pass_type", "seq_len", "cache_tokens"];

pub type Find<'a> = &'a dyn Fn(Named<'_>) -> Result<Found, PlanError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A preset, or a folder.
    Any(&'a str),
    /// Always a folder.
    Folder(&'a str),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The name in cases: of the preset in its own spelling, or of the folder as it was written.
    pub name: String,
    pub config: Config,
}

/// Resolves the cases: models in the given order, tests from short to long.
pub fn settle(given: &[Given], find: Find<'_>) -> Result<Plan, PlanError> {
    refuse_two_ways(given)?;
    let resolved = resolve(&aliases(), given)?;
    // Values that no model accepts are refused before models are looked up; too many cases, before they are created.
    let mut of_any = without(&resolved, &["model", "test"]);
    of_any.push(("test".to_owned(), vec!["any".to_owned()]));
    Plan::settle(NAME, axes(), &of_any)?;
    let mut cases = Vec::new();
    for model in models(given, find)? {
        cases.extend(model.cases(&resolved)?);
        refuse_too_many(cases.len() as u128)?;
    }
    Plan::of_cases(axes(), without_unused_pattern(cases, &resolved)?)
}

const SPARSE: [&str; 2] = ["sparse", "sliding-window"];

fn without_unused_pattern(cases: Vec<Case>, given: &[Given]) -> Result<Vec<Case>, PlanError> {
    let is_sparse = |case: &Case| case.text("attention").is_ok_and(|kind| SPARSE.contains(&kind));
    if cases.iter().any(is_sparse) {
        return Ok(cases);
    }
    let unused: Vec<&str> = pattern_axes().iter().map(|axis| axis.name).collect();
    if let Some((axis, _)) = given.iter().find(|(axis, _)| unused.contains(&axis.as_str())) {
        let reason = format!("`{axis}` applies to no requested attention");
        return Err(refused(reason, "`--attention dense,sparse` compares a pattern with dense attention"));
    }
    let without = |case: Case| {
        let values = case.values().filter(|(axis, _)| !unused.contains(axis));
        Case::new(values.map(|(axis, value)| (axis.to_owned(), value.clone())).collect())
    };
    Ok(cases.into_iter().map(without).collect())
}

/// Refuses two flags that set the same thing.
fn refuse_two_ways(given: &[Given]) -> Result<(), PlanError> {
    let aliases = aliases();
    let of_axis = |axis: &str| given.iter().find(|(name, _)| axis_of(&aliases, name) == axis);
    let length = OF_TESTS.iter().find_map(|axis| of_axis(axis));
    if let (Some(_), Some((other, _))) = (of_axis("test"), length) {
        let reason = format!("`test` and `{other}` both select the pass");
        let hint = "`--test tg128@d4096` includes pass, length and cached tokens; leave out the other flag";
        return Err(refused(reason, hint));
    }
    let is_model = |(name, _): &&Given| axis_of(&aliases, name) == "model";
    let (folders, names): (Vec<&Given>, Vec<&Given>) =
        given.iter().filter(is_model).partition(|(name, _)| name == FOLDER_FLAG);
    match (folders.first(), names.first()) {
        (Some(_), Some((name, _))) => {
            let reason = format!("`{FOLDER_FLAG}` and `{name}` both select a model");
            Err(refused(reason, "the folder's config.json defines the model; leave out the other flag"))
        }
        _ => Ok(()),
    }
}

fn without(given: &[Given], axes: &[&str]) -> Vec<Given> {
    given.iter().filter(|(axis, _)| !axes.contains(&axis.as_str())).cloned().collect()
}

/// A model with the defaults of the flag that named it.
struct Model {
    found: Found,
    is_course: bool,
}

fn models(given: &[Given], find: Find<'_>) -> Result<Vec<Model>, PlanError> {
    let mut models: Vec<Model> = Vec::new();
    let default = [("model".to_owned(), vec!["tiny".to_owned()])];
    let aliases = aliases();
    let named: Vec<&Given> = given.iter().filter(|(name, _)| axis_of(&aliases, name) == "model").collect();
    for (flag, words) in if named.is_empty() { default.iter().collect() } else { named } {
        let values = parse_values(words.iter().map(String::as_str));
        for value in values.map_err(|source| PlanError::Values { axis: "model", source })? {
            let text = value.to_string();
            let found = find(if flag == FOLDER_FLAG { Named::Folder(&text) } else { Named::Any(&text) })?;
            if !models.iter().any(|known| known.found.name == found.name) {
                models.push(Model { found, is_course: COURSE_FLAGS.contains(&flag.as_str()) });
            }
        }
    }
    Ok(models)
}

impl Model {
    /// The cases of this model from short to long, grouped by dtype, because weights are created again for each dtype.
    fn cases(&self, given: &[Given]) -> Result<Vec<Case>, PlanError> {
        let reduced = self.reduced(given);
        let mut found = Vec::new();
        let tests = self.tests(given, reduced)?;
        for (pattern, &test) in
            self.patterns(given).iter().flat_map(|pattern| tests.iter().map(move |test| (pattern, test)))
        {
            let axes = of_pattern(self.axes(reduced), pattern);
            let mut of_test = self.of_test(given, test, reduced);
            of_test.push(("pattern".to_owned(), vec![pattern.clone()]));
            let plan = Plan::settle(NAME, axes, &of_test)?;
            let dtypes = plan.axes().find(|(axis, _)| axis.name == "dtype").map_or(&[][..], |(_, values)| values);
            for case in plan.cases() {
                let dtype = dtypes.iter().position(|dtype| Some(dtype) == case.get("dtype")).unwrap_or(0);
                let tokens = case.size("batch_size").unwrap_or(1) as u128 * test.tokens as u128;
                found.push(((dtype, test.pass, tokens, test.cached), with_pattern_name(&case)));
            }
        }
        found.sort_by_key(|(key, _)| *key);
        Ok(found.into_iter().map(|(_, case)| case).collect())
    }

    /// The reduced size of this model with `--reduced`, if CS336 assignment 2 has one.
    fn reduced(&self, given: &[Given]) -> Option<(usize, i64)> {
        let is_true = |word: &String| word.split(',').any(|part| part.trim() == "true");
        let is_asked = given.iter().any(|(axis, words)| axis == "reduced" && words.iter().any(is_true));
        // Sizes that were given are not reduced.
        let is_said = ["batch_size", "seq_len", "test"].iter().any(|axis| is_given(given, axis));
        let is_asked = is_asked && !is_said;
        let known = REDUCED.iter().find(|(name, ..)| *name == self.found.config.name).filter(|_| is_asked)?;
        Some((known.1, known.2))
    }

    /// The named patterns; by default that of the model, which may have no name.
    fn patterns(&self, given: &[Given]) -> Vec<String> {
        match &self.found.config.pattern {
            Some(_) if !is_given(given, "pattern") => vec![CUSTOM.to_owned()],
            _ => patterns(given),
        }
    }

    fn axes(&self, reduced: Option<(usize, i64)>) -> Vec<AxisSpec> {
        let Config { dtype, attention_type, pattern, .. } = &self.found.config;
        let word = match attention_type {
            _ if self.is_course => "naive",
            Attention::Naive => "naive",
            Attention::Dense => "dense",
        };
        let batch = reduced.map_or(if self.is_course { COURSE_BATCH } else { 1 }, |(_, batch)| batch);
        let default = |axis: &str| -> Option<AxisValue> {
            match axis {
                "batch_size" => Some(batch.into()),
                "dtype" => Some(if self.is_course { "f32" } else { dtype.word() }.into()),
                "attention" => Some(word.into()),
                "window" => pattern.map(|pattern| (pattern.window as i64).into()),
                "global" => pattern.map(|pattern| (pattern.global as i64).into()),
                "random" => pattern.map(|pattern| (pattern.random as i64).into()),
                _ => None,
            }
        };
        let mut axes = axes();
        for axis in &mut axes {
            axis.default = default(axis.name).map_or_else(|| axis.default.clone(), |value| vec![value]);
        }
        axes
    }

    /// The given values with the model, the test and the reduction resolved.
    fn of_test(&self, given: &[Given], test: Test, reduced: Option<(usize, i64)>) -> Vec<Given> {
        let mut settled =
            without(given, &["model", "test", "reduced", "pass_type", "seq_len", "cache_tokens", "pattern"]);
        let mut add = |axis: &str, word: String| settled.push((axis.to_owned(), vec![word]));
        add("model", self.found.name.clone());
        add("test", test.to_string());
        add("pass_type", test.pass.word().to_owned());
        add("seq_len", test.tokens.to_string());
        add("cache_tokens", test.cached.to_string());
        add("reduced", reduced.is_some().to_string());
        settled
    }

    /// The named tests, or every pass at every length after every number of cached tokens.
    fn tests(&self, given: &[Given], reduced: Option<(usize, i64)>) -> Result<Vec<Test>, PlanError> {
        if let Some(named) = named_tests(given)? {
            return Ok(named);
        }
        let lengths = sizes(given, "seq_len");
        let passes = match (passes(given), self.is_course || !lengths.is_empty()) {
            (Some(passes), _) => passes,
            (None, true) if self.is_course => vec![Pass::ForwardBackward],
            (None, true) => vec![Pass::Forward],
            (None, false) => vec![Pass::Prefill, Pass::Decode],
        };
        let cached = Some(sizes(given, "cache_tokens")).filter(|cached| !cached.is_empty()).unwrap_or_else(|| vec![0]);
        let mut tests = Vec::new();
        for pass in passes {
            for &cached in &cached {
                let lengths =
                    if lengths.is_empty() { vec![self.length(pass, cached, reduced)] } else { lengths.clone() };
                tests.extend(lengths.into_iter().map(|tokens| Test { pass, tokens, cached }));
            }
        }
        Ok(tests)
    }

    /// The default length of a pass, at most the context of the model.
    fn length(&self, pass: Pass, cached: usize, reduced: Option<(usize, i64)>) -> usize {
        let (usual, before) = match pass {
            Pass::Decode => (DECODED, cached.max(1)),
            _ => (reduced.map_or(TOKENS, |(tokens, _)| tokens), cached),
        };
        usual.min(self.found.config.context.saturating_sub(before)).max(1)
    }
}

/// The tests that were named; none if none were.
fn named_tests(given: &[Given]) -> Result<Option<Vec<Test>>, PlanError> {
    let words: Vec<&str> =
        given.iter().filter(|(axis, _)| axis == "test").flat_map(|(_, words)| words).map(String::as_str).collect();
    if words.is_empty() {
        return Ok(None);
    }
    let values = parse_values(words).map_err(|source| PlanError::Values { axis: "test", source })?;
    let read = |value: &AxisValue| value.to_string().parse::<Test>();
    let tests: Result<Vec<Test>, _> = values.iter().map(read).collect();
    tests.map(Some).map_err(|error| {
        refused(error.to_string(), "ppN runs N tokens at once, tgN decodes N, forwardN and stepN run N without a cache")
    })
}

/// The passes that were given, which were read before; none if none were.
fn passes(given: &[Given]) -> Option<Vec<Pass>> {
    let passes: Vec<Pass> = words(given, "pass_type").iter().filter_map(|word| word.parse().ok()).collect();
    Some(passes).filter(|passes| !passes.is_empty())
}

/// The sizes that were given on an axis, which were read before.
fn sizes(given: &[Given], axis: &str) -> Vec<usize> {
    words(given, axis).iter().filter_map(|word| word.parse().ok()).collect()
}
