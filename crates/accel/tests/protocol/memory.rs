//! Memory that two sides share, weakly ordered: a store is pending first, and becomes visible later.

/// A store that others do not see yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Store {
    word: usize,
    value: u8,
    releases: bool,
}

/// The stores of one thread that others do not see yet, in program order.
///
/// They become visible in any order, except that stores to one word stay in order, and that a store
/// which releases waits for all before it. That is what C11 allows for relaxed and releasing stores,
/// and weaker than any device that we know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pending(Vec<Store>);

impl Pending {
    /// A relaxed store.
    pub fn store(&mut self, word: usize, value: u8) {
        self.0.push(Store { word, value, releases: false });
    }

    /// A store that releases, unless the mutation under test has made it relaxed.
    pub fn release(&mut self, word: usize, value: u8, releases: bool) {
        self.0.push(Store { word, value, releases });
    }

    /// Which stores may become visible next, by their places.
    pub fn next(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter_map(|(at, store)| {
            let waits = |before: &Store| store.releases || before.word == store.word;
            (!self.0[..at].iter().any(waits)).then_some(at)
        })
    }

    /// Makes a store visible in `memory`.
    pub fn show(&mut self, at: usize, memory: &mut [u8]) {
        let Store { word, value, .. } = self.0.remove(at);
        memory[word] = value;
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}
