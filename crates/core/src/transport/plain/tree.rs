//! HTML as a tree, by the algorithm that browsers share: html5gum splits it into tags and text, html5ever builds the tree.
//!
//! The tokenizer of html5ever is not used, because it compares each attribute of a tag with all others: a tag of some
//! megabytes would take hours. What is quadratic in the construction of the tree is avoided here: depth and number of
//! elements are bounded, and elements that only format text are renamed, because they are opened again and again where
//! they overlap with others.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use html5ever::interface::{ElemName, ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Doctype, Tag, TagKind, Token, TokenSink, TokenSinkResult};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{Attribute, LocalName, Namespace, QualName, local_name, ns};
use html5gum::{StartTag, State, Tokenizer};

use super::nodes::{Node, Place, Tree};

/// Far deeper than mail is. Tags within are ignored, but not their text; a tag may look at all elements around it.
const MAX_DEPTH: usize = 256;
/// Far more than a mail has that people read.
const MAX_ELEMENTS: usize = 100_000;
/// Elements that may overlap with others, apart from links.
const FORMATTING: [&[u8]; 13] = [
    b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong",
    b"tt", b"u",
];
/// Elements whose content is not markup. They do not nest, and their content must not be taken for text.
const RAW: [&[u8]; 8] = [
    b"iframe",
    b"noembed",
    b"noframes",
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"xmp",
];
/// The attributes that matter here.
const ATTRIBUTES: [&[u8]; 6] = [b"alt", b"hidden", b"href", b"start", b"style", b"value"];

pub(super) fn parse(html: &str) -> Tree {
    let options = TreeBuilderOpts {
        // The content of `noscript` is markup then.
        scripting_enabled: false,
        ..TreeBuilderOpts::default()
    };
    let builder = TreeBuilder::new(Sink::default(), options);
    // Mail is displayed by the current rules, with any doctype of its own.
    let doctype = Doctype {
        name: Some("html".into()),
        public_id: None,
        system_id: None,
        force_quirks: false,
    };
    feed(&builder, Token::DoctypeToken(doctype));
    let mut tokenizer = Tokenizer::new(html);
    while let Some(Ok(token)) = tokenizer.next() {
        match token {
            html5gum::Token::String(text) => {
                feed(&builder, Token::CharacterTokens(tendril(&text.value)));
            }
            html5gum::Token::StartTag(tag) => {
                if (builder.sink.has_room() || RAW.contains(&&tag.name[..]))
                    && let Some(state) = feed(&builder, Token::TagToken(start_tag(tag)))
                {
                    tokenizer.set_state(state);
                }
            }
            html5gum::Token::EndTag(tag) => {
                feed(&builder, Token::TagToken(end_tag(&tag.name)));
                builder.sink.leave();
            }
            html5gum::Token::Comment(_)
            | html5gum::Token::Doctype(_)
            | html5gum::Token::Error(_) => {}
        }
    }
    feed(&builder, Token::EOFToken);
    builder.end();
    builder.sink.finish()
}

/// Returns how the tokenizer goes on, if not as before.
fn feed(builder: &TreeBuilder<usize, Sink>, token: Token) -> Option<State> {
    match builder.process_token(token, 1) {
        TokenSinkResult::RawData(RawKind::Rcdata) => Some(State::RcData),
        TokenSinkResult::RawData(RawKind::Rawtext) => Some(State::RawText),
        TokenSinkResult::RawData(_) => Some(State::ScriptData),
        TokenSinkResult::Plaintext => Some(State::PlainText),
        _ => None,
    }
}

fn tendril(bytes: &[u8]) -> StrTendril {
    StrTendril::from_slice(&String::from_utf8_lossy(bytes))
}

fn local(name: &[u8]) -> LocalName {
    if FORMATTING.contains(&name) {
        local_name!("span")
    } else {
        LocalName::from(String::from_utf8_lossy(name))
    }
}

fn start_tag(tag: StartTag<()>) -> Tag {
    let attributes = tag
        .attributes
        .into_iter()
        .filter(|(name, _)| ATTRIBUTES.contains(&&name[..]))
        .map(|(name, value)| Attribute {
            name: QualName::new(None, ns!(), LocalName::from(String::from_utf8_lossy(&name))),
            value: tendril(&value.value),
        });
    Tag {
        kind: TagKind::StartTag,
        name: local(&tag.name),
        self_closing: tag.self_closing,
        attrs: attributes.collect(),
        had_duplicate_attributes: false,
    }
}

fn end_tag(name: &[u8]) -> Tag {
    Tag {
        kind: TagKind::EndTag,
        name: local(name),
        self_closing: false,
        attrs: Vec::new(),
        had_duplicate_attributes: false,
    }
}

/// What the tree builder calls.
struct Sink {
    tree: RefCell<Tree>,
    elements: Cell<usize>,
    /// Of the element in which the next node will be, as far as is known.
    depth: Cell<usize>,
}

impl Default for Sink {
    fn default() -> Self {
        let document = Place::element(QualName::new(None, ns!(), local_name!("")), Vec::new());
        Self {
            tree: RefCell::new(Tree(vec![document])),
            elements: Cell::new(0),
            depth: Cell::new(0),
        }
    }
}

impl Sink {
    fn has_room(&self) -> bool {
        self.depth.get() < MAX_DEPTH && self.elements.get() < MAX_ELEMENTS
    }

    /// After an end tag. If it ended more elements than one, or none, the next node tells.
    fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    fn insert(&self, child: NodeOrText<usize>, parent: usize, next: Option<usize>) {
        let mut tree = self.tree.borrow_mut();
        if let NodeOrText::AppendNode(at) = child {
            tree.detach(at);
        }
        self.depth.set(tree.insert(child, parent, next));
    }
}

#[derive(Debug)]
struct Name(Rc<QualName>);

impl ElemName for Name {
    fn ns(&self) -> &Namespace {
        &self.0.ns
    }

    fn local_name(&self) -> &LocalName {
        &self.0.local
    }
}

impl TreeSink for Sink {
    type Handle = usize;
    type Output = Tree;
    type ElemName<'a> = Name;

    fn finish(self) -> Tree {
        self.tree.into_inner()
    }

    fn get_document(&self) -> usize {
        0
    }

    fn elem_name<'a>(&'a self, target: &'a usize) -> Name {
        Name(match &self.tree.borrow().0[*target].node {
            Node::Element(element) => element.name.clone(),
            Node::Text(_) => Rc::new(QualName::new(None, ns!(), local_name!(""))),
        })
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, _: ElementFlags) -> usize {
        self.elements.set(self.elements.get() + 1);
        self.tree.borrow_mut().add(Place::element(name, attrs))
    }

    fn append(&self, parent: &usize, child: NodeOrText<usize>) {
        self.insert(child, *parent, None);
    }

    fn append_before_sibling(&self, sibling: &usize, child: NodeOrText<usize>) {
        let parent = self.tree.borrow().0[*sibling].parent;
        if let Some(parent) = parent {
            self.insert(child, parent, Some(*sibling));
        }
    }

    fn append_based_on_parent_node(
        &self,
        element: &usize,
        previous: &usize,
        child: NodeOrText<usize>,
    ) {
        if self.tree.borrow().0[*element].parent.is_some() {
            self.append_before_sibling(element, child);
        } else {
            self.append(previous, child);
        }
    }

    fn remove_from_parent(&self, target: &usize) {
        self.tree.borrow_mut().detach(*target);
    }

    fn reparent_children(&self, node: &usize, new_parent: &usize) {
        while let Some(child) = {
            let tree = self.tree.borrow();
            tree.0[*node].first_child
        } {
            self.append(new_parent, NodeOrText::AppendNode(child));
        }
    }

    fn same_node(&self, x: &usize, y: &usize) -> bool {
        x == y
    }

    /// The content of a template is not shown, so it may as well be in the element.
    fn get_template_contents(&self, target: &usize) -> usize {
        *target
    }

    // Nothing of this is fed, or matters for the text.
    fn create_comment(&self, _: StrTendril) -> usize {
        self.tree
            .borrow_mut()
            .add(Place::new(Node::Text(String::new())))
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> usize {
        self.create_comment(StrTendril::new())
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn add_attrs_if_missing(&self, _: &usize, _: Vec<Attribute>) {}
}
