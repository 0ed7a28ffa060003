//! The pictures that README and book show.

use std::path::{Path, PathBuf};

/// A picture, and the window in which it is taken.
pub struct Picture {
    pub name: &'static str,
    pub width: usize,
    pub height: usize,
    /// Whether it shows what is below the window, too.
    pub is_whole: bool,
    pub scheme: &'static str,
}

impl Picture {
    pub fn file(&self) -> String {
        format!("{}.png", self.name)
    }
}

pub const PICTURES: [Picture; 4] = [
    at_desk("now"),
    at_desk("messages"),
    at_desk("message"),
    Picture {
        name: "phone",
        width: 375,
        height: 812,
        is_whole: false,
        scheme: "dark",
    },
];

const fn at_desk(name: &'static str) -> Picture {
    Picture {
        name,
        width: 1280,
        height: 600,
        is_whole: true,
        scheme: "light",
    }
}

/// Octets that each may have.
const MOST: usize = 200_000;

/// A file that is a picture.
pub struct Found {
    pub width: usize,
    pub height: usize,
    pub octets: usize,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures")
}

/// Reads a PNG.
pub fn read(path: &Path) -> Found {
    let octets = std::fs::read(path)
        .unwrap_or_else(|error| panic!("{}: {error}: run make pictures", path.display()));
    assert!(
        octets.starts_with(b"\x89PNG\r\n\x1a\n"),
        "{} is no PNG",
        path.display()
    );
    let number = |at: usize| {
        let number = u32::from_be_bytes(octets[at..at + 4].try_into().unwrap());
        usize::try_from(number).unwrap()
    };
    Found {
        width: number(16),
        height: number(20),
        octets: octets.len(),
    }
}

#[test]
fn pictures_of_the_book_are_there_and_small() {
    for picture in &PICTURES {
        let name = picture.file();
        let found = read(&folder().join(&name));
        assert_eq!(found.width, picture.width, "{name}");
        assert!(found.octets <= MOST, "{name} has {} octets", found.octets);
    }
    let kept = std::fs::read_dir(folder()).unwrap();
    assert_eq!(
        kept.count(),
        PICTURES.len(),
        "each of docs/pictures is made by make pictures"
    );
    // What pages name is there: docs.rs follows their links. Each is named.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(pages.contains("(docs/pictures/"), "README.md shows none");
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                pages.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    for picture in &PICTURES {
        let name = picture.file();
        assert!(
            pages.contains(&format!("pictures/{name})")),
            "no page shows {name}"
        );
    }
}
