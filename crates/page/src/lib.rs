//! `report.html`: a trace, a run or a comparison as one file that opens without a network.
//!
//! Key figures and tables are plain HTML, so the page can be read without a script. The script (`web/`) adds the
//! timeline and the charts, from compressed columns in the page ([`data`]). The content security policy allows this
//! script and this style and nothing else, and names are only ever written as text.

mod base64;
mod columns;
pub mod data;
mod fields;
mod ranks_page;
mod run_page;
mod sha256;
pub mod thin;
mod trace_page;
mod waterfall;

use std::io::{self, Write};

use laptime_report::html::escape;

pub use self::{
    ranks_page::of_ranks,
    run_page::{Comparison, of_comparison, of_runs},
    trace_page::{About, OnDiagnosis, Viewer, of_trace, of_trace_with},
    waterfall::of_waterfall,
};

/// The modules of the script, each after those that it uses.
const MODULES: [&str; 15] = [
    include_str!("../web/format.js"),
    include_str!("../web/colours.js"),
    include_str!("../web/inflate.js"),
    include_str!("../web/data.js"),
    include_str!("../web/model.js"),
    include_str!("../web/measure.js"),
    include_str!("../web/draw.js"),
    include_str!("../web/details.js"),
    include_str!("../web/timeline.js"),
    include_str!("../web/keys.js"),
    include_str!("../web/flame.js"),
    include_str!("../web/charts.js"),
    include_str!("../web/tables.js"),
    include_str!("../web/view.js"),
    include_str!("../web/main.js"),
];

const STYLE: &str = include_str!("../web/style.css");

/// A page, ready to be written.
#[derive(Debug, Default)]
pub struct Page {
    /// The title.
    pub title: String,
    /// What the page is about, in a line below the title.
    pub subtitle: String,
    sections: Vec<Section>,
    /// The compressed data of a trace.
    data: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Section {
    id: &'static str,
    title: String,
    body: String,
}

impl Page {
    /// Adds a section; one without content is left out.
    fn section(&mut self, id: &'static str, title: &str, body: String) {
        if !body.trim().is_empty() {
            self.sections.push(Section { id, title: title.to_owned(), body });
        }
    }

    /// Writes the page.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_with(out, self.data.as_deref(), false)
    }

    /// The page without its data, for a server: the content security policy only allows requests to that server.
    fn served(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to memory cannot fail.
        let _ = self.write_with(&mut out, None, true);
        out
    }

    fn write_with(&self, out: &mut dyn Write, data: Option<&[u8]>, is_served: bool) -> io::Result<()> {
        let script = script();
        let hash = |text: &str| format!("'sha256-{}'", base64::text(&sha256::sha256(text.as_bytes())));
        let (script_hash, style_hash) = (hash(&script), hash(STYLE));
        let (served, connect) = if is_served { (" data-served", " connect-src 'self';") } else { ("", "") };
        let (title, subtitle) = (escape(&self.title), escape(&self.subtitle));
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\"{served}>\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {script_hash}; \
             style-src {style_hash};{connect} base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"generator\" content=\"laptime\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
             <body>\n<header>\n<div class=\"brand\">laptime report</div>\n<h1>{title}</h1>\n\
             <p class=\"subtitle\">{subtitle}</p>\n</header>\n<nav aria-label=\"Sections\">"
        )?;
        for section in &self.sections {
            write!(out, "<a href=\"#{}\">{}</a>", section.id, escape(&section.title))?;
        }
        writeln!(out, "</nav>\n<main>")?;
        for Section { id, title, body } in &self.sections {
            writeln!(out, "<section id=\"{id}\">\n<h2>{}</h2>\n{body}</section>", escape(title))?;
        }
        writeln!(out, "</main>")?;
        if let Some(data) = data {
            write!(out, "<script type=\"application/octet-stream\" id=\"data\">")?;
            base64::write(data, out)?;
            writeln!(out, "</script>")?;
        }
        writeln!(out, "<script>{script}</script>\n</body>\n</html>")
    }
}

/// The empty page that a server sends to anyone: its script requests the rest with the token in its address.
pub fn shell() -> Vec<u8> {
    Page { title: "laptime view".to_owned(), ..Page::default() }.served()
}

/// The modules as one script: their imports and exports are names of one function.
fn script() -> String {
    let mut script = String::from("(() => {\n\"use strict\";\n");
    for line in MODULES.iter().flat_map(|module| module.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with("import ") || line.starts_with("//") {
            continue;
        }
        script.push_str(line.strip_prefix("export ").unwrap_or(line));
        script.push('\n');
    }
    script.push_str("main();\n})();\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_without_data_is_small_and_its_script_cannot_end_early() {
        let script = script();
        assert!(!script.to_ascii_lowercase().contains("</script"), "the script would end there");
        assert!(!script.contains("\nimport ") && !script.contains("\nexport "));
        let mut out = Vec::new();
        Page { title: "a trace".to_owned(), ..Page::default() }.write(&mut out).unwrap();
        assert!(out.len() < 100_000, "the page without data has {} bytes", out.len());
    }

    #[test]
    fn modules_share_one_scope_without_clashes() {
        let mut names: Vec<&str> = Vec::new();
        for line in MODULES.iter().flat_map(|module| module.lines()) {
            let line = line.strip_prefix("export ").unwrap_or(line);
            let line = line.strip_prefix("async ").unwrap_or(line);
            let Some((word, rest)) = line.split_once(' ') else { continue };
            if ["const", "let", "function", "class"].contains(&word) {
                let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
                assert!(!names.contains(&&rest[..end]), "two modules declare {}", &rest[..end]);
                names.push(&rest[..end]);
            }
        }
        assert!(names.len() > 50, "{names:?}");
    }

    #[test]
    fn every_module_is_in_the_script() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "js") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(MODULES.contains(&text.as_str()), "{} is not in MODULES", path.display());
            }
        }
    }
}
