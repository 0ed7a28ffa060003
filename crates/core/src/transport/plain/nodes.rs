//! Nodes of HTML in the order of the document.

use std::rc::Rc;

use html5ever::interface::NodeOrText;
use html5ever::{Attribute, QualName};

pub(super) enum Node {
    Element(Element),
    Text(String),
}

pub(super) struct Element {
    /// Shared, because the tree builder asks for it often.
    pub(super) name: Rc<QualName>,
    attributes: Vec<Attribute>,
}

impl Element {
    pub(super) fn name(&self) -> &str {
        &self.name.local
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|attribute| &*attribute.name.local == name)
            .map(|attribute| &*attribute.value)
    }
}

/// Where a walk is.
pub(super) enum Step<'t> {
    Begin(&'t Node),
    /// After the content of an element.
    End(&'t Element),
}

/// A node and its neighbours, as indexes into the list of all.
pub(super) struct Place {
    pub(super) node: Node,
    depth: usize,
    pub(super) parent: Option<usize>,
    previous: Option<usize>,
    next: Option<usize>,
    pub(super) first_child: Option<usize>,
    last_child: Option<usize>,
}

impl Place {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            depth: 0,
            parent: None,
            previous: None,
            next: None,
            first_child: None,
            last_child: None,
        }
    }

    pub(super) fn element(name: QualName, attributes: Vec<Attribute>) -> Self {
        Self::new(Node::Element(Element {
            name: Rc::new(name),
            attributes,
        }))
    }
}

/// All nodes; the first is the document.
pub(super) struct Tree(pub(super) Vec<Place>);

impl Tree {
    /// Visits all nodes in the order of the document, but not what is in an element for which `visit` returns false, nor
    /// its end.
    pub(super) fn walk(&self, mut visit: impl FnMut(Step<'_>) -> bool) {
        let mut next = self.0[0].first_child;
        while let Some(at) = next {
            let place = &self.0[at];
            let enters = visit(Step::Begin(&place.node));
            if enters && place.first_child.is_some() {
                next = place.first_child;
                continue;
            }
            if enters && let Node::Element(element) = &place.node {
                visit(Step::End(element));
            }
            let mut last = at;
            while self.0[last].next.is_none()
                && let Some(parent) = self.0[last].parent
            {
                if parent > 0
                    && let Node::Element(element) = &self.0[parent].node
                {
                    visit(Step::End(element));
                }
                last = parent;
            }
            next = self.0[last].next;
        }
    }

    pub(super) fn add(&mut self, place: Place) -> usize {
        self.0.push(place);
        self.0.len() - 1
    }

    pub(super) fn detach(&mut self, at: usize) {
        let (parent, previous, next) = (self.0[at].parent, self.0[at].previous, self.0[at].next);
        match (previous, parent) {
            (Some(previous), _) => self.0[previous].next = next,
            (None, Some(parent)) => self.0[parent].first_child = next,
            (None, None) => {}
        }
        match (next, parent) {
            (Some(next), _) => self.0[next].previous = previous,
            (None, Some(parent)) => self.0[parent].last_child = previous,
            (None, None) => {}
        }
        let place = &mut self.0[at];
        (place.parent, place.previous, place.next) = (None, None, None);
    }

    /// Inserts a node, or text that becomes part of a text before it, before `next` or as the last child. Returns its depth.
    pub(super) fn insert(
        &mut self,
        child: NodeOrText<usize>,
        parent: usize,
        next: Option<usize>,
    ) -> usize {
        let depth = self.0[parent].depth + 1;
        let previous = match next {
            Some(next) => self.0[next].previous,
            None => self.0[parent].last_child,
        };
        let at = match child {
            NodeOrText::AppendNode(at) => at,
            NodeOrText::AppendText(text) => {
                if let Some(previous) = previous
                    && let Node::Text(before) = &mut self.0[previous].node
                {
                    before.push_str(&text);
                    return depth - 1;
                }
                self.add(Place::new(Node::Text(text.to_string())))
            }
        };
        match previous {
            Some(previous) => self.0[previous].next = Some(at),
            None => self.0[parent].first_child = Some(at),
        }
        match next {
            Some(next) => self.0[next].previous = Some(at),
            None => self.0[parent].last_child = Some(at),
        }
        let place = &mut self.0[at];
        (place.parent, place.previous, place.next) = (Some(parent), previous, next);
        place.depth = depth;
        match place.node {
            Node::Element(_) => depth,
            Node::Text(_) => depth - 1,
        }
    }
}
