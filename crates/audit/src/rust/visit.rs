//! The walk through a Rust file.

use proc_macro2::{LineColumn, Span, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, ItemFn, Macro, spanned::Spanned};

use super::calls::{Verdict, goes_through, is_read, judge, names};
use super::macros::{Inside, token_calls};
use super::scope::{Scope, is_test, line, type_name};
use crate::rules::{Form, Needs, Rule, Rules};
use crate::{paths::Language, site::Site};

/// The maximum depth of macros that are parsed; deeper ones are scanned as tokens, since each is parsed again.
const MOST_MACROS: u32 = 16;

pub struct Visitor<'r> {
    rules: &'r Rules,
    scope: Scope,
    pub found: Vec<Site>,
    pub unknown: u64,
    pub test_modules: Vec<String>,
}

impl<'r> Visitor<'r> {
    pub fn new(rules: &'r Rules, lines: u32) -> Self {
        let scope = Scope { path: String::new(), lines: (1, lines), loop_depth: 0, is_test: false, macros: 0 };
        Self { rules, scope, found: Vec::new(), unknown: 0, test_modules: Vec::new() }
    }

    /// Continues in another scope, and returns.
    fn within(&mut self, scope: Scope, visit: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.scope, scope);
        visit(self);
        self.scope = around;
    }

    fn in_loop(&mut self, visit: impl FnOnce(&mut Self)) {
        self.scope.loop_depth += 1;
        visit(self);
        self.scope.loop_depth -= 1;
    }

    fn add(&mut self, rule: &Rule, call: String, place: Span, end: LineColumn) {
        let start = place.start();
        let site = Site {
            line: line(start),
            column: u32::try_from(start.column).unwrap_or(u32::MAX).saturating_add(1),
            last_line: line(end).max(line(start)),
            call,
            name: rule.last_name().to_owned(),
            certainty: rule.certainty,
            function: self.scope.path.clone(),
            function_lines: self.scope.lines,
            loop_depth: self.scope.loop_depth,
            is_test: self.scope.is_test,
            allowed: None,
        };
        self.found.push(site);
    }

    fn take(&mut self, verdict: Verdict<'_>, place: Span, end: LineColumn) {
        match verdict {
            Verdict::Unknown => self.unknown += 1,
            Verdict::Waits(rule) => {
                let call = match rule.needs {
                    Needs::Cpu => format!("{}(Cpu)", rule.name),
                    _ => rule.name.to_string(),
                };
                self.add(rule, call, place, end);
            }
        }
    }

    /// A macro that is a sync itself: its content is part of that sync.
    fn marked(&mut self, mac: &Macro) -> bool {
        let path = names(&mac.path);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let is_macro = |rule: &&Rule| rule.form == Form::Macro && rule.fits(&path);
        let rules = self.rules;
        let Some(rule) = rules.of(Language::Rust).find(is_macro) else { return false };
        let literal = match mac.tokens.clone().into_iter().next() {
            Some(TokenTree::Literal(literal)) => format!(" {}", literal.to_string().trim_matches('"')),
            _ => String::new(),
        };
        let end = mac.delimiter.span().close().end();
        self.add(rule, format!("{}!{literal}", rule.last_name()), mac.path.span(), end);
        true
    }

    fn look_at_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let rules = self.rules;
        let has_rule = |name: &str| rules.of(Language::Rust).any(|rule| rule.last_name() == name);
        for call in token_calls(tokens, &has_rule) {
            let name = call.name.to_string();
            if let Some(verdict) = judge(rules, &[&name], call.arguments.iter()) {
                self.take(verdict, call.name.span(), call.end);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.scope.is_test = is_test(&file.attrs);
        visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() && is_test(&item.attrs) {
            self.test_modules.push(item.ident.to_string());
        }
        let scope = self.scope.named(&item.ident.to_string(), &item.attrs);
        self.within(scope, |visitor| visit::visit_item_mod(visitor, item));
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let scope = self.scope.function(&item.sig, &item.attrs, Some(&item.block));
        self.within(scope, |visitor| visit::visit_item_fn(visitor, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let scope = self.scope.named(&type_name(&item.self_ty), &item.attrs);
        self.within(scope, |visitor| visit::visit_item_impl(visitor, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let scope = self.scope.named(&item.ident.to_string(), &item.attrs);
        self.within(scope, |visitor| visit::visit_item_trait(visitor, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let scope = self.scope.function(&item.sig, &item.attrs, Some(&item.block));
        self.within(scope, |visitor| visit::visit_impl_item_fn(visitor, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let scope = self.scope.function(&item.sig, &item.attrs, item.default.as_ref());
        self.within(scope, |visitor| visit::visit_trait_item_fn(visitor, item));
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let name = item.ident.as_ref().map(|name| format!("{name}!")).unwrap_or_default();
        let scope = self.scope.named(&name, &item.attrs);
        self.within(scope, |visitor| match item.ident {
            // The templates of `macro_rules!` are not valid Rust on their own.
            Some(_) => visitor.look_at_tokens(item.mac.tokens.clone()),
            None => visit::visit_item_macro(visitor, item),
        });
    }

    fn visit_expr_for_loop(&mut self, turns: &'ast syn::ExprForLoop) {
        self.visit_pat(&turns.pat);
        self.visit_expr(&turns.expr);
        self.in_loop(|visitor| visitor.visit_block(&turns.body));
    }

    fn visit_expr_while(&mut self, turns: &'ast syn::ExprWhile) {
        self.in_loop(|visitor| visit::visit_expr_while(visitor, turns));
    }

    fn visit_expr_loop(&mut self, turns: &'ast syn::ExprLoop) {
        self.in_loop(|visitor| visit::visit_expr_loop(visitor, turns));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        let name = call.method.to_string();
        let verdict = judge(self.rules, &[&name], call.args.iter());
        if let Some(verdict) = verdict
            && !is_read(self.rules, &call.receiver)
        {
            self.take(verdict, call.method.span(), call.paren_token.span.close().end());
        }
        let is_through = goes_through(&name, &call.receiver);
        for argument in &call.args {
            if is_through && matches!(argument, Expr::Closure(_)) {
                self.in_loop(|visitor| visitor.visit_expr(argument));
            } else {
                self.visit_expr(argument);
            }
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let path = names(&function.path);
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            if let Some(verdict) = judge(self.rules, &path, call.args.iter()) {
                let place = function.path.segments.last().map_or_else(|| function.span(), |last| last.ident.span());
                self.take(verdict, place, call.paren_token.span.close().end());
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        if self.marked(mac) {
            return;
        }
        if self.scope.macros >= MOST_MACROS {
            return self.look_at_tokens(mac.tokens.clone());
        }
        self.scope.macros += 1;
        match Inside::of(mac.tokens.clone()) {
            Inside::Expressions(list) => list.iter().for_each(|expression| Visitor::visit_inside(self, expression)),
            Inside::Statements(list) => {
                list.iter().for_each(|statement| Visitor::visit_inside_statement(self, statement))
            }
            Inside::Tokens(tokens) => self.look_at_tokens(tokens),
        }
        self.scope.macros -= 1;
    }
}

/// The content of a macro does not outlive its visit.
impl Visitor<'_> {
    fn visit_inside(&mut self, expression: &Expr) {
        Visit::visit_expr(self, expression);
    }

    fn visit_inside_statement(&mut self, statement: &syn::Stmt) {
        Visit::visit_stmt(self, statement);
    }
}
