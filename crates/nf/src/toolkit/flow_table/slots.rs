//! The slots of a table, in pages.
//!
//! A table grows by a page: what is there stays where it is, so that no packet waits for a copy.

use thalweg_cpu::{helper, prefetch};

/// The slots of a page. Each page belongs to one section of the table.
pub(super) const PAGE: usize = 256;

/// The most entries that are compared when one is evicted.
const WINDOW: usize = 8;
const _: () = assert!(PAGE.is_multiple_of(WINDOW));

type Page<T> = Box<[Option<T>; PAGE]>;

/// Where the search for entries to evict goes on in a section.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hand(usize);

/// The slots of all sections.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pages: Vec<Page<T>>,
    /// The section of each page.
    owners: Vec<u16>,
    sections: Vec<Section>,
}

/// A section of a table.
#[derive(Clone, Debug, Default)]
struct Section {
    free: Vec<u32>,
    pages: Vec<u32>,
    entries: usize,
}

impl<T> Slots<T> {
    /// # Panics
    /// When there is no section, or more than 65,536.
    pub(super) fn new(sections: usize) -> Self {
        assert!((1..=1 << 16).contains(&sections), "a table of {sections} sections");
        let sections = vec![Section::default(); sections];
        Self { pages: Vec::new(), owners: Vec::new(), sections }
    }

    /// The number of slots, free ones included.
    pub(super) fn len(&self) -> usize {
        self.pages.len() * PAGE
    }

    pub(super) fn sections(&self) -> usize {
        self.sections.len()
    }

    /// The entries in a section.
    #[inline]
    pub(super) fn entries_of(&self, section: usize) -> usize {
        self.sections[section].entries
    }

    /// The section of a slot.
    #[inline]
    pub(super) fn section_of(&self, slot: usize) -> usize {
        self.owners.get(slot / PAGE).map_or(0, |section| usize::from(*section))
    }

    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<&T> {
        self.pages.get(slot / PAGE)?[slot % PAGE].as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.pages.get_mut(slot / PAGE)?[slot % PAGE].as_mut()
    }

    /// Prefetches the memory of a slot.
    #[inline]
    pub(super) fn prefetch(&self, slot: usize) {
        if let Some(page) = self.pages.get(slot / PAGE) {
            prefetch::whole(&page[..], slot % PAGE);
        }
    }

    /// The slot that the next entry of a section takes.
    pub(super) fn next_free(&mut self, section: usize) -> usize {
        if let Some(slot) = self.sections[section].free.last() {
            return *slot as usize;
        }
        let first = self.len() as u32;
        let page: Vec<Option<T>> = (0..PAGE).map(|_| None).collect();
        self.pages.extend(Page::try_from(page.into_boxed_slice()));
        self.owners.push(section as u16);
        let section = &mut self.sections[section];
        section.pages.push(first / PAGE as u32);
        section.free.extend((first..first + PAGE as u32).rev());
        first as usize
    }

    /// Fills the slot that [`next_free`](Self::next_free) has returned.
    pub(super) fn fill(&mut self, slot: usize, entry: T) {
        let section = self.section_of(slot);
        let section = &mut self.sections[section];
        section.free.pop();
        section.entries += 1;
        self.pages[slot / PAGE][slot % PAGE] = Some(entry);
    }

    /// Takes out the entry in a slot.
    pub(super) fn take(&mut self, slot: usize) -> Option<T> {
        let entry = self.pages.get_mut(slot / PAGE)?[slot % PAGE].take()?;
        let section = self.section_of(slot);
        self.sections[section].free.push(slot as u32);
        self.sections[section].entries -= 1;
        Some(entry)
    }

    /// The slots of a section, free ones included.
    pub(super) fn slots_of(&self, section: usize) -> usize {
        self.sections[section].pages.len() * PAGE
    }

    /// Slot number `n` of a section.
    ///
    /// # Panics
    /// When it has fewer.
    #[inline]
    pub(super) fn slot_of(&self, section: usize, n: usize) -> usize {
        self.sections[section].pages[n / PAGE] as usize * PAGE + n % PAGE
    }

    /// The entries of a section, in the order of their slots.
    pub(super) fn iter_in(&self, section: usize) -> impl Iterator<Item = &T> {
        let pages = self.sections[section].pages.iter();
        pages.flat_map(|page| self.pages[*page as usize].iter().flatten())
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter().flatten())
    }

    /// The slot of the entry of least worth among the next few from `hand` on that have a worth;
    /// `None` if no entry of the section has.
    pub(super) fn least<R: Ord>(
        &self,
        section: usize,
        Hand(hand): &mut Hand,
        worth: impl Fn(&T) -> Option<R>,
    ) -> Option<usize> {
        let slots = self.slots_of(section);
        // Neighbours began at about the same time, so the slots that are compared lie far apart.
        let apart = slots / WINDOW;
        let slot = |n: usize| self.slot_of(section, n % WINDOW * apart + n / WINDOW);
        let (mut least, mut seen) = (None, 0);
        for _ in 0..slots {
            *hand = if *hand < slots { *hand } else { 0 };
            let slot = slot(*hand);
            *hand += 1;
            let Some(worth) = self.get(slot).and_then(&worth) else { continue };
            if least.as_ref().is_none_or(|(known, _)| worth < *known) {
                least = Some((worth, slot));
            }
            seen += 1;
            if seen == WINDOW {
                break;
            }
        }
        // The next search comes soon, if the table is full.
        (*hand..slots.min(*hand + WINDOW)).for_each(|next| self.prefetch(slot(next)));
        least.map(|(_, slot)| slot)
    }
}

impl<T: Send + 'static> Slots<T> {
    /// Empties all slots and frees their memory.
    pub(super) fn clear(&mut self) {
        let empty = Self::new(self.sections());
        helper::discard(std::mem::replace(self, empty));
    }
}
