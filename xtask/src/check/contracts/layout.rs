//! Whether the two halves of the contract see the same storage: the code of one runs on the storage of the other.

use super::Verdict;
use super::sources::{Layouts, Sources, Variable};

/// The half that has an address and storage.
const FRONT: &str = "AgentSandboxBlueprint";
/// The half whose code the front runs.
const BEHIND: &str = "AgentSandboxAnnex";

/// Compares every variable's name, slot, offset and type. A half that is not there is a fault.
pub(super) fn judge(sources: &Sources) -> Verdict {
    match sources.pair(FRONT, BEHIND) {
        Some((front, behind)) => compare(&front.layouts, &behind.layouts),
        None if !sources.has(FRONT) => fault(format!("{FRONT} is not among the sources")),
        None if !sources.has(BEHIND) => fault(format!("{BEHIND} is not among the sources")),
        None => fault(format!("{FRONT} and {BEHIND} are compiled with different settings")),
    }
}

fn compare(front: &Layouts, behind: &Layouts) -> Verdict {
    let (here, there) = (&front.permanent.variables, &behind.permanent.variables);
    if here.is_empty() {
        return fault(format!("{FRONT} has no storage, so nothing was compared"));
    }
    if let Some(difference) = difference(here, there) {
        return fault(difference);
    }
    // What lasts a transaction the front may have for itself; only a variable of the half behind could lie upon another.
    let (here_transient, there_transient) = (&front.transient.variables, &behind.transient.variables);
    let shared = here_transient.len().min(there_transient.len());
    if let Some(difference) = difference(&here_transient[..shared], there_transient) {
        return fault(format!("transient, {difference}"));
    }
    let summary = format!("storage: {FRONT} and {BEHIND} agree on {} variables", here.len());
    Verdict { summaries: vec![summary], faults: Vec::new() }
}

fn fault(what: String) -> Verdict {
    Verdict { summaries: Vec::new(), faults: vec![format!("storage: {what}")] }
}

/// The first place at which the two differ.
fn difference(front: &[Variable], behind: &[Variable]) -> Option<String> {
    let mut pairs = (0..front.len().max(behind.len())).map(|index| (front.get(index), behind.get(index)));
    let (here, there) = pairs.find(|(here, there)| here != there)?;
    Some(format!("{FRONT} has {}, {BEHIND} {}", shown(here), shown(there)))
}

fn shown(variable: Option<&Variable>) -> String {
    match variable {
        None => "nothing more".to_string(),
        Some(Variable { label, slot, offset, type_name }) => {
            format!("`{label}` of {type_name} in slot {slot} at byte {offset}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::Layout;
    use super::super::sources::tests::example;
    use super::*;

    fn variable(label: &str, slot: &str) -> Variable {
        Variable { label: label.to_string(), slot: slot.to_string(), offset: 0, type_name: "t_uint64".to_string() }
    }

    fn layouts(permanent: &[Variable], transient: &[Variable]) -> Layouts {
        let layout = |variables: &[Variable]| Layout { variables: variables.to_vec() };
        Layouts { permanent: layout(permanent), transient: layout(transient) }
    }

    fn faults(front: &Layouts, behind: &Layouts) -> Vec<String> {
        compare(front, behind).faults
    }

    #[test]
    fn equal_halves_pass() {
        let half = || layouts(&[variable("a", "0"), variable("b", "1")], &[]);
        assert_eq!(faults(&half(), &half()), Vec::<String>::new());
    }

    #[test]
    fn the_first_difference_is_named() {
        let front = layouts(&[variable("a", "0"), variable("b", "1"), variable("c", "2")], &[]);
        let behind = layouts(&[variable("a", "0"), variable("c", "1"), variable("b", "2")], &[]);
        assert_eq!(
            faults(&front, &behind),
            ["storage: AgentSandboxBlueprint has `b` of t_uint64 in slot 1 at byte 0, \
              AgentSandboxAnnex `c` of t_uint64 in slot 1 at byte 0"]
        );
    }

    #[test]
    fn a_variable_more_on_either_side_is_a_difference() {
        let (one, two) = (&[variable("a", "0")][..], &[variable("a", "0"), variable("b", "1")][..]);
        assert!(faults(&layouts(one, &[]), &layouts(two, &[]))[0].contains("has nothing more, AgentSandboxAnnex `b`"));
        assert!(faults(&layouts(two, &[]), &layouts(one, &[]))[0].ends_with("AgentSandboxAnnex nothing more"));
    }

    #[test]
    fn the_half_behind_has_no_transient_variable_of_its_own() {
        let storage = &[variable("a", "0")];
        let flag = &[variable("flag", "0")];
        assert_eq!(faults(&layouts(storage, flag), &layouts(storage, &[])), Vec::<String>::new());
        assert_eq!(faults(&layouts(storage, flag), &layouts(storage, flag)), Vec::<String>::new());
        assert!(faults(&layouts(storage, &[]), &layouts(storage, flag))[0].contains("transient"));
        assert!(faults(&layouts(storage, flag), &layouts(storage, &[variable("lock", "0")]))[0].contains("transient"));
    }

    #[test]
    fn to_have_compared_nothing_is_a_fault() {
        assert!(faults(&layouts(&[], &[]), &layouts(&[], &[]))[0].contains("no storage"));
        assert_eq!(judge(&example()).faults, ["storage: AgentSandboxBlueprint is not among the sources"]);
    }
}
