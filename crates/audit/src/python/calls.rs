//! Classifies calls in Python: a host sync, none, or a copy to a device that cannot be determined.

use tree_sitter::Node;

use super::imports::Imports;
use crate::paths::Language;
use crate::rules::{Certainty, Form, Needs, Rule, Rules};

/// The maximum length of a call chain such as `x.detach().cpu()`.
const MOST_LINKS: usize = 64;

/// Modules whose functions compute on devices; functions of other modules are not tensor methods.
const DEVICE_MODULES: [&str; 2] = ["torch", "jax"];

/// Modules whose results are on the host.
const HOST_MODULES: [&str; 4] = ["cv2", "numpy", "pandas", "scipy"];

/// What is needed to classify calls.
#[derive(Debug)]
pub struct Calls<'a> {
    pub rules: &'a Rules,
    pub text: &'a str,
    pub imports: Imports,
}

#[derive(Debug)]
pub enum Called<'a> {
    Wait(Wait<'a>),
    /// It may copy to the CPU: the device is not a literal.
    Unknown,
}

/// A call that makes the host wait.
#[derive(Debug)]
pub struct Wait<'a> {
    pub place: Node<'a>,
    /// The call as shown to users.
    pub call: String,
    pub name: String,
    pub certainty: Certainty,
}

/// The name of a called function.
struct Function<'a> {
    place: Node<'a>,
    path: Vec<String>,
    /// The first name is a module.
    is_of_module: bool,
    /// The object of the method call; none for a plain name.
    object: Option<Node<'a>>,
    /// The names start at a plain name, so they are the complete path.
    is_whole: bool,
}

enum Verdict {
    Waits,
    Unknown,
    No,
}

impl<'a> Calls<'a> {
    pub fn text_of(&self, node: Node<'_>) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// Classifies a call whose truth value is used by `truth`.
    pub fn called<'n>(&self, call: Node<'n>, truth: Option<&'static str>) -> Option<Called<'n>> {
        let function = self.function(call)?;
        let (rule, verdict) = self.judge(call, &function, truth)?;
        match verdict {
            Verdict::No => None,
            Verdict::Unknown => Some(Called::Unknown),
            Verdict::Waits if function.object.is_some_and(|object| self.is_on_host(object)) => None,
            Verdict::Waits => {
                let name = rule.last_name().to_owned();
                let call = call_text(rule, &function, truth);
                Some(Called::Wait(Wait { place: function.place, call, name, certainty: rule.certainty }))
            }
        }
    }

    fn judge(&self, call: Node<'_>, function: &Function<'_>, truth: Option<&str>) -> Option<(&'a Rule, Verdict)> {
        let path: Vec<&str> = function.path.iter().map(String::as_str).collect();
        let rules = self.rules.of(Language::Python).filter(|rule| rule.fits(&path));
        let mut fitting = rules.filter(|rule| function.has_form(rule.form, truth));
        fitting.find_map(|rule| match self.verdict(rule.needs, call) {
            Verdict::No => None,
            verdict => Some((rule, verdict)),
        })
    }

    fn verdict(&self, needs: Needs, call: Node<'_>) -> Verdict {
        let arguments = Arguments::of(call, self);
        let is_met = match needs {
            Needs::Nothing => true,
            Needs::NoArguments => arguments.positional == 0,
            Needs::OneArgument => arguments.positional == 1 && !arguments.has_keywords,
            Needs::Cpu => return arguments.device(),
        };
        if is_met { Verdict::Waits } else { Verdict::No }
    }

    /// The names of the called function; none if it is not a name.
    fn function<'n>(&self, call: Node<'n>) -> Option<Function<'n>> {
        let mut node = call.child_by_field_name("function")?;
        let mut names: Vec<&str> = Vec::new();
        let (mut place, mut object) = (node, None);
        while node.kind() == "attribute" && names.len() < MOST_LINKS {
            let (name, inner) = (node.child_by_field_name("attribute")?, node.child_by_field_name("object")?);
            if names.is_empty() {
                (place, object) = (name, Some(inner));
            }
            names.push(self.text_of(name));
            node = inner;
        }
        let mut path = Vec::new();
        let mut is_of_module = false;
        let is_whole = node.kind() == "identifier";
        if is_whole {
            let first = self.text_of(node);
            let imported = self.imports.get(first);
            is_of_module = imported.is_some_and(|imported| imported.is_module);
            path.extend(imported.map_or(first, |imported| &imported.path).split('.').map(str::to_owned));
        }
        path.extend(names.iter().rev().map(|name| (*name).to_owned()));
        (!path.is_empty()).then_some(Function { place, path, is_of_module, object, is_whole })
    }

    /// Whether a call chain has already copied its data to the host, or created it there.
    fn is_on_host(&self, mut node: Node<'_>) -> bool {
        for _ in 0..MOST_LINKS {
            let inner = match node.kind() {
                "call" => {
                    if self.gives_host_data(node) {
                        return true;
                    }
                    node.child_by_field_name("function")
                }
                "attribute" => node.child_by_field_name("object"),
                "subscript" => node.child_by_field_name("value"),
                "parenthesized_expression" => node.named_child(0),
                _ => None,
            };
            let Some(inner) = inner else { return false };
            node = inner;
        }
        false
    }

    fn gives_host_data(&self, call: Node<'_>) -> bool {
        let Some(function) = self.function(call) else { return false };
        let is_of_host = function.is_whole && HOST_MODULES.contains(&&*function.path[0]);
        let arguments = Arguments::of(call, self);
        let is_made_on_cpu = arguments.has_device && matches!(arguments.device(), Verdict::Waits);
        is_of_host
            || is_made_on_cpu
            || matches!(self.judge(call, &function, None), Some((rule, Verdict::Waits)) if rule.is_read)
    }
}

impl Function<'_> {
    fn has_form(&self, form: Form, truth: Option<&str>) -> bool {
        let is_method = self.object.is_some() && !self.is_of_module;
        match form {
            Form::Method => is_method,
            Form::Function => self.is_whole,
            Form::Any => true,
            Form::Macro => false,
            Form::Truth => {
                let is_of_device = self.is_whole && self.object.is_some() && DEVICE_MODULES.contains(&&*self.path[0]);
                truth.is_some() && (is_method || is_of_device)
            }
        }
    }
}

fn call_text(rule: &Rule, function: &Function<'_>, truth: Option<&str>) -> String {
    match (rule.form, rule.needs) {
        (Form::Truth, _) => match truth {
            Some("if") | None => format!("if {}()", rule.name),
            Some(number) => format!("{number}({}())", rule.name),
        },
        (_, Needs::Cpu) => format!("{}(\"cpu\")", rule.name),
        (Form::Any, _) if function.is_of_module => function.path.join("."),
        _ => rule.name.to_string(),
    }
}

struct Arguments<'a> {
    positional: usize,
    has_keywords: bool,
    /// The device is given by keyword.
    has_device: bool,
    is_non_blocking: bool,
    device: Option<Node<'a>>,
    calls: &'a Calls<'a>,
}

impl<'a> Arguments<'a> {
    fn of(call: Node<'a>, calls: &'a Calls<'a>) -> Self {
        let mut arguments =
            Self { positional: 0, has_keywords: false, has_device: false, is_non_blocking: false, device: None, calls };
        let Some(list) = call.child_by_field_name("arguments") else { return arguments };
        let mut cursor = list.walk();
        for argument in list.named_children(&mut cursor) {
            match argument.kind() {
                "comment" => {}
                "keyword_argument" => arguments.keyword(argument),
                _ => {
                    if arguments.positional == 0 {
                        arguments.device = Some(argument);
                    }
                    arguments.positional += 1;
                }
            }
        }
        // A generator in place of an argument list: `any(x for x in y)`.
        if list.kind() != "argument_list" {
            arguments.positional = 1;
        }
        arguments
    }

    fn keyword(&mut self, argument: Node<'a>) {
        self.has_keywords = true;
        let part = |field| argument.child_by_field_name(field);
        let name = part("name").map(|name| self.calls.text_of(name));
        match (name, part("value")) {
            (Some("device"), value) => (self.device, self.has_device) = (value, true),
            (Some("non_blocking"), Some(value)) => self.is_non_blocking = self.calls.text_of(value) == "True",
            _ => {}
        }
    }

    /// Whether a copy goes to the CPU.
    fn device(&self) -> Verdict {
        let Some(device) = self.device.filter(|_| !self.is_non_blocking) else { return Verdict::No };
        let is_cpu =
            |text: &str| if text.trim_matches(['"', '\'']).starts_with("cpu") { Verdict::Waits } else { Verdict::No };
        let text = self.calls.text_of(device);
        match device.kind() {
            "string" => is_cpu(text),
            "call" => match text.split_once('(') {
                Some((function, inner)) if function.ends_with("device") => is_cpu(inner),
                _ => Verdict::Unknown,
            },
            // A dtype, such as `torch.float16`.
            "attribute" if text.starts_with("torch.") => Verdict::No,
            "identifier" | "attribute" => Verdict::Unknown,
            _ => Verdict::No,
        }
    }
}
