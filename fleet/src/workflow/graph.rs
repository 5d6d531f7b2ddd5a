//! Which steps need which: known, different, and in no circle.

use std::collections::{BTreeMap, BTreeSet};

use sandbox_protocol::Failure;
use sandbox_protocol::workflow::body::Step;

use super::place::Place;

/// The steps of a workflow by their places, and what they need.
#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    id: String,
    /// What it names itself.
    needs: BTreeSet<usize>,
    /// What must be through before it, for whatever reason.
    before: BTreeSet<usize>,
}

impl Graph {
    /// The graph of these steps.
    ///
    /// # Errors
    /// The step that is there twice, needs what is not there, or itself, in the end.
    pub(super) fn of(steps: &[Step]) -> Result<Self, Failure> {
        let mut places = BTreeMap::new();
        for (place, step) in steps.iter().enumerate() {
            if places.insert(step.id.as_str(), place).is_some() {
                return Err(Place::step(&step.id).wrong("id: another step has it already"));
            }
        }
        let mut nodes = Vec::new();
        for step in steps {
            let (id, needs) = (step.id.clone(), needs(step, &places)?);
            nodes.push(Node { id, needs, before: BTreeSet::new() });
        }
        let mut graph = Self { nodes };
        let mut done = BTreeSet::new();
        for place in 0..graph.nodes.len() {
            graph.close(place, &mut Vec::new(), &mut done)?;
        }
        Ok(graph)
    }

    /// Finds what is before a step. It goes down by one for every step on the way, so never deeper than there are steps.
    fn close(&mut self, place: usize, way: &mut Vec<usize>, done: &mut BTreeSet<usize>) -> Result<(), Failure> {
        if done.contains(&place) {
            return Ok(());
        }
        if let Some(first) = way.iter().position(|passed| *passed == place) {
            return Err(self.circle(&way[first..]));
        }
        way.push(place);
        let needs = self.nodes[place].needs.clone();
        let mut before = needs.clone();
        for need in needs {
            self.close(need, way, done)?;
            before.extend(&self.nodes[need].before);
        }
        way.pop();
        done.insert(place);
        self.nodes[place].before = before;
        Ok(())
    }

    fn circle(&self, way: &[usize]) -> Failure {
        let names: Vec<&str> = way.iter().chain(way.first()).map(|place| self.id(*place)).collect();
        let first = names.first().copied().unwrap_or_default();
        Place::step(first).wrong(format!("needs: a circle: {}", names.join(" needs ")))
    }

    pub(super) fn id(&self, place: usize) -> &str {
        &self.nodes[place].id
    }

    pub(super) fn needs(&self, place: usize) -> &BTreeSet<usize> {
        &self.nodes[place].needs
    }

    /// Names of the steps that must be through before this one.
    pub(super) fn before(&self, place: usize) -> BTreeSet<String> {
        self.nodes[place].before.iter().map(|before| self.id(*before).to_owned()).collect()
    }
}

fn needs(step: &Step, places: &BTreeMap<&str, usize>) -> Result<BTreeSet<usize>, Failure> {
    let bad = |message: String| Err(Place::step(&step.id).wrong(format!("needs: {message}")));
    let mut needs = BTreeSet::new();
    for need in &step.needs {
        let Some(place) = places.get(need.as_str()) else { return bad(format!("no step {need:?}")) };
        if !needs.insert(*place) {
            return bad(format!("{need:?} twice"));
        }
    }
    Ok(needs)
}
