//! Figures and tables, and their files.

use crate::config::Config;
use crate::experiment::Store;

use super::claims::{self, Claim, Mark, Range};
use super::figure::{Figure, PaperMark};
use super::metrics::Runs;
use super::{File, figures, tables};

/// A figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artefact {
    /// Cycles of a switch's packet, by traffic.
    Figure3,
    /// Misses of cuckoo and single-function tables.
    Figure4,
    /// How well the flow register counts.
    Figure8b,
    /// Lookups in one table, by its size and occupancy.
    Figure9,
    /// The parts of a lookup's time.
    Figure10,
    /// Tuple space search.
    Figure11,
    /// What runs on the core's other thread beside lookups.
    Figure12,
    /// Network functions.
    Figure13,
    /// Instructions of a software lookup.
    Table1,
    /// Energy and area.
    Table4,
}

impl Artefact {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Figure3,
        Self::Figure4,
        Self::Figure8b,
        Self::Figure9,
        Self::Figure10,
        Self::Figure11,
        Self::Figure12,
        Self::Figure13,
        Self::Table1,
        Self::Table4,
    ];

    /// The name of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Figure3 => "figure-3",
            Self::Figure4 => "figure-4",
            Self::Figure8b => "figure-8b",
            Self::Figure9 => "figure-9",
            Self::Figure10 => "figure-10",
            Self::Figure11 => "figure-11",
            Self::Figure12 => "figure-12",
            Self::Figure13 => "figure-13",
            Self::Table1 => "table-1",
            Self::Table4 => "table-4",
        }
    }

    /// The names of its files, those that people look at first.
    pub(super) fn names(self) -> Vec<String> {
        let more: &[&str] = match self {
            Self::Figure9 => &["", "-occupancy"],
            Self::Figure12 => &["", "-misses"],
            _ => &[""],
        };
        let kinds: &[&str] = match self {
            Self::Table1 | Self::Table4 => &["csv"],
            _ => &["svg", "pdf", "csv"],
        };
        let of = |more| kinds.iter().map(move |kind| format!("{}{more}.{kind}", self.name()));
        more.iter().flat_map(of).collect()
    }

    /// The simulations that it needs, over the machine of `base`.
    pub fn runs(self, base: &Config) -> Vec<Config> {
        Store::wanted_by(|store| {
            self.contents(Runs { base, store });
        })
    }

    /// Its files, once its simulations have ended.
    ///
    /// # Panics
    /// When they have not.
    pub fn files(self, base: &Config, store: &Store) -> Vec<File> {
        let contents = match self.contents(Runs { base, store }) {
            Content::Table(text) => vec![text.into_bytes()],
            Content::Figures(figures) => {
                let files = |(n, mut figure): (usize, Figure)| {
                    // The first is the paper's; others have other axes.
                    let paper = if n == 0 { self.paper() } else { String::new() };
                    if n == 0 {
                        figure.marks = self.marks(&figure);
                    }
                    figure.caption = caption(&figure, &paper, base);
                    [figure.svg().into_bytes(), figure.pdf(), figure.csv().into_bytes()]
                };
                figures.into_iter().enumerate().flat_map(files).collect()
            }
        };
        let file = |(name, bytes)| File { name, bytes };
        self.names().into_iter().zip(contents).map(file).collect()
    }

    pub(super) fn contents(self, runs: Runs<'_>) -> Content {
        Content::Figures(match self {
            Self::Figure3 => vec![figures::figure_3(runs)],
            Self::Figure4 => vec![figures::figure_4(runs)],
            Self::Figure8b => vec![figures::figure_8b(runs.base)],
            Self::Figure9 => vec![figures::figure_9(runs), figures::figure_9_occupancy(runs)],
            Self::Figure10 => vec![figures::figure_10(runs)],
            Self::Figure11 => vec![figures::figure_11(runs)],
            Self::Figure12 => vec![figures::figure_12(runs), figures::figure_12_misses(runs)],
            Self::Figure13 => vec![figures::figure_13(runs)],
            Self::Table1 => return Content::Table(tables::table_1(runs.base, runs.store)),
            Self::Table4 => return Content::Table(tables::table_4(runs.base, runs.store)),
        })
    }

    /// What the paper gives where this shows it, in words.
    fn paper(self) -> String {
        let all = claims::read();
        let here = |claim: &&Claim| claim.marks.iter().any(|mark| mark.figure == self.name());
        let words: Vec<&str> = all.iter().filter(here).map(|claim| claim.paper.as_str()).collect();
        if words.is_empty() { String::new() } else { format!("The paper: {}.", words.join("; ")) }
    }

    /// The numbers of the paper that its figure shows.
    fn marks(self, figure: &Figure) -> Vec<PaperMark> {
        let mark = |claim: &Claim, mark: &Mark| {
            let at = |name: &str| figure.points.iter().position(|point| point.name == name);
            let given = mark.value.map(|value| Range(value, value));
            let Range(least, most) = given.or_else(|| claim.numbers())?;
            Some(PaperMark { from: at(&mark.from)?, to: at(&mark.to)?, least, most })
        };
        let of = |claim: &Claim| {
            let marks = claim.marks.iter().filter(|mark| mark.figure == self.name());
            marks.filter_map(|one| mark(claim, one)).collect::<Vec<_>>()
        };
        claims::read().iter().flat_map(of).collect()
    }
}

/// The contents of an artefact.
pub(super) enum Content {
    Figures(Vec<Figure>),
    Table(String),
}

/// What a reader must know besides the picture.
fn caption(figure: &Figure, paper: &str, base: &Config) -> String {
    let intervals = if figure.has_intervals() {
        format!("Whiskers: 95 % intervals, over {}.", figure.samples)
    } else {
        "No intervals: counts of one run.".to_owned()
    };
    let version = env!("CARGO_PKG_VERSION");
    let (machine, seed) = (base.summary(), base.sim.seed);
    let machine = format!("Machine: {machine}. Thalweg {version}, seed {seed}.");
    let sentences = [&*figure.caption, paper, &*intervals, &*machine];
    let given = sentences.into_iter().filter(|sentence| !sentence.is_empty());
    given.collect::<Vec<_>>().join(" ")
}
