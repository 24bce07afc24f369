//! Where ports look for files, so that no part of a chain writes a file there.

use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};
use thalweg_source::{FileIdentity, end_of_links};

/// The characters that make a name a pattern.
pub(crate) const WILD: [char; 3] = ['*', '?', '['];

/// A place where a port looks for its files.
#[derive(Clone, Debug)]
pub enum Searched {
    /// All files of a folder.
    Folder(PathBuf),
    /// The files that match a pattern.
    Pattern(Pattern),
}

impl Searched {
    /// The files that match the pattern `name` in a folder: by this name, and by the real one of
    /// the folder where the search begins, since other files may name it otherwise.
    ///
    /// # Errors
    /// If it is no pattern.
    pub(crate) fn pattern(folder: &Path, name: &str) -> Result<[Self; 2], PatternError> {
        let parts: Vec<_> = Path::new(name).components().collect();
        let is_wild = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(WILD);
        let begin = parts.iter().position(is_wild).unwrap_or(parts.len());
        let (fixed, wild) = parts.split_at(begin);
        let start = real_folder(&folder.join(fixed.iter().collect::<PathBuf>()));
        let wild: PathBuf = wild.iter().collect();
        let pattern = |whole: String| Pattern::new(&whole).map(Self::Pattern);
        Ok([pattern(pattern_in(folder, Path::new(name)))?, pattern(pattern_in(&start, &wild))?])
    }

    /// The folder where the search begins.
    pub fn start(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.clone(),
            Self::Pattern(pattern) => {
                let is_wild =
                    |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(WILD);
                let path = Path::new(pattern.as_str());
                let fixed: PathBuf = path.components().take_while(|part| !is_wild(part)).collect();
                // Without a pattern at all, it is the file.
                if fixed == path {
                    fixed.parent().map(Path::to_owned).unwrap_or_default()
                } else {
                    fixed
                }
            }
        }
    }

    /// Whether a file that is written to `path` would be found.
    pub fn finds(&self, path: &Path) -> bool {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
        [path, &end_of_links(path)].into_iter().any(|path| {
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            match self {
                Self::Folder(searched) => {
                    FileIdentity::of(&real_folder(folder)) == FileIdentity::of(searched)
                }
                Self::Pattern(pattern) => {
                    let real = real_folder(folder).join(path.file_name().unwrap_or_default());
                    [path, &real].iter().any(|path| pattern.matches_path_with(path, options))
                }
            }
        })
    }
}

/// The path of a folder without links and `..`, if it exists.
fn real_folder(folder: &Path) -> PathBuf {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// The pattern `name` relative to a folder, in whose own name nothing is a pattern.
pub(crate) fn pattern_in(folder: &Path, name: &Path) -> String {
    let folder = Pattern::escape(&folder.to_string_lossy());
    Path::new(&folder).join(name).to_string_lossy().into_owned()
}
