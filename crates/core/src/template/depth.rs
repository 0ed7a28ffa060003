//! How deep the syntax tree of a template may be, read from its tokens before anything is parsed.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::refusal::Refusal;

/// Words and signs of one expression, up to its innermost part: each may be a level of the tree, and the compiler goes
/// down all of them.
const DEPTH_MAX: usize = 250;
/// Each `elif` is a level of the tree too.
const ELIF_MAX: usize = 100;

/// Refuses what would make a tree too deep. To be asked before anything is parsed; what cannot be read is left to the
/// parser.
pub fn check_depth(source: &str) -> Result<(), Refusal> {
    // For each bracket that is open, how much stands since the last comma: only that can be above what follows.
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
