//! `PrefixTree`: of many texts, those that another text begins with, found in one walk along that text.

/// Numbers by the texts that have to be the beginning of another one.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    /// The first one is the root, whose part is empty.
    nodes: Vec<PrefixNode>,
}

/// The texts that continue with the same part.
#[derive(Debug, Default)]
struct PrefixNode {
    /// What follows the parts of the nodes further up.
    part: Box<[u8]>,
    /// The numbers of the text that ends here.
    numbers: Vec<usize>,
    /// The nodes further down, by the first byte of their parts, in ascending order.
    next: Vec<(u8, usize)>,
}

impl Default for PrefixTree {
    fn default() -> Self {
        Self {
            nodes: vec![PrefixNode::default()],
        }
    }
}

impl PrefixTree {
    /// Adds a number for a text.
    pub(crate) fn insert(&mut self, text: &[u8], number: usize) {
        let (mut at, mut rest) = (0, text);
        while let Some(first) = rest.first().copied() {
            let Some(node) = self.nodes.get(at) else {
                return;
            };
            let found = node.next.binary_search_by_key(&first, |(byte, _)| *byte);
            at = match found {
                Ok(position) => {
                    let Some((_, below)) = node.next.get(position).copied() else {
                        return;
                    };
                    let part = self.nodes.get(below).map(|node| &*node.part);
                    let common = common_length(part.unwrap_or_default(), rest);
                    rest = rest.get(common..).unwrap_or_default();
                    self.split(below, common);
                    below
                }
                Err(position) => {
                    let below = self.push(PrefixNode {
                        part: rest.into(),
                        ..PrefixNode::default()
                    });
                    if let Some(node) = self.nodes.get_mut(at) {
                        node.next.insert(position, (first, below));
                    }
                    rest = &[];
                    below
                }
            };
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.numbers.push(number);
        }
    }

    /// Ends the part of a node after so many bytes. What follows becomes a node below it.
    fn split(&mut self, at: usize, length: usize) {
        let Some(node) = self.nodes.get_mut(at) else {
            return;
        };
        let Some((part, rest)) = node.part.split_at_checked(length) else {
            return;
        };
        let Some(first) = rest.first().copied() else {
            return;
        };
        let below = PrefixNode {
            part: rest.into(),
            numbers: std::mem::take(&mut node.numbers),
            next: std::mem::take(&mut node.next),
        };
        node.part = part.into();
        let below = self.push(below);
        if let Some(node) = self.nodes.get_mut(at) {
            node.next.push((first, below));
        }
    }

    fn push(&mut self, node: PrefixNode) -> usize {
        self.nodes.push(node);
        self.nodes.len().saturating_sub(1)
    }

    /// Whether there is no text.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes
            .first()
            .is_none_or(|root| root.numbers.is_empty() && root.next.is_empty())
    }

    /// Adds the numbers of all texts that this one begins with.
    pub(crate) fn push_prefixes(&self, text: &[u8], found: &mut Vec<usize>) {
        let (mut node, mut rest) = (self.nodes.first(), text);
        while let Some(here) = node {
            found.extend_from_slice(&here.numbers);
            let Some(first) = rest.first() else {
                return;
            };
            let below = here.next.binary_search_by_key(first, |(byte, _)| *byte);
            let below = below.ok().and_then(|position| here.next.get(position));
            node = below.and_then(|(_, below)| self.nodes.get(*below));
            match node.and_then(|node| rest.strip_prefix(&*node.part)) {
                Some(after) => rest = after,
                None => return,
            }
        }
    }
}

fn common_length(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_texts_that_a_search_of_all_finds() {
        let mut seed = 7_u32;
        let mut text = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = seed >> 29;
            let letters = (0..length).map(|at| b"/ab"[(seed >> (3 * at + 4)) as usize % 3]);
            letters.collect::<Vec<u8>>()
        };
        for count in [0, 1, 3, 50, 400] {
            let texts: Vec<Vec<u8>> = (0..count).map(|_| text()).collect();
            let mut tree = PrefixTree::default();
            for (number, text) in texts.iter().enumerate() {
                tree.insert(text, number);
            }
            assert_eq!(tree.is_empty(), count == 0);
            for _ in 0..500 {
                let asked = text();
                let mut found = Vec::new();
                tree.push_prefixes(&asked, &mut found);
                found.sort_unstable();
                let is_prefix = |number: &usize| asked.starts_with(&texts[*number]);
                let expected: Vec<usize> = (0..count).filter(is_prefix).collect();
                assert_eq!(found, expected, "{asked:?} in {texts:?}");
            }
        }
    }
}
