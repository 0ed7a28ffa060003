//! How deep the syntax tree of a template may be, read from its tokens before anything is parsed.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::refusal::Refusal;

/// Maximum number of tokens of one expression down to its innermost part. Each of them may be a level of the tree, and
/// the compiler recurses into every level.
const DEPTH_MAX: usize = 250;
/// Maximum number of `elif`: each is a level of the tree.
const ELIF_MAX: usize = 100;

/// Refuses a template whose tree would be too deep. Must be called before the template is parsed. Syntax errors are
/// left to the parser.
pub fn check_depth(source: &str) -> Result<(), Refusal> {
    // For each open bracket, the number of tokens since the last comma: only these can be above the tokens that follow.
    let mut open = vec![0_usize];
    let mut elifs = 0;
    for (token, span) in tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => open = vec![0],
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => open.push(0),
            Token::ParenClose | Token::BracketClose | Token::BraceClose if open.len() > 1 => {
                open.pop();
            }
            Token::Ident("elif") => elifs += 1,
            _ => {}
        }
        if let Some(last) = open.last_mut() {
            *last = if matches!(token, Token::Comma) {
                0
            } else {
                *last + 1
            };
        }
        if open.iter().sum::<usize>() > DEPTH_MAX {
            let what = format!("more than {DEPTH_MAX} words and signs in one expression");
            return Err(Refusal::new(span, what));
        }
        if elifs > ELIF_MAX {
            return Err(Refusal::new(span, format!("more than {ELIF_MAX} elif")));
        }
    }
    Ok(())
}
