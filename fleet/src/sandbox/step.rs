//! The transition function of a sandbox's life.

use super::{Effect, Event, Phase};

/// What an event does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The phase becomes this one, then the effect is carried out, if any.
    To(Phase, Option<Effect>),
    /// The event changes nothing: it is a repeat, or speaks of what no longer matters.
    Already,
    /// The event must wait until the effect under way has ended.
    Later,
}

/// The phase that follows `phase` when `event` happens. Pure and total.
pub fn step(phase: &Phase, event: Event) -> Step {
    match (phase, event) {
        // Beginning, and picking up after a restart: every effect may be repeated.
        (Phase::Requested | Phase::Provisioning, Event::Start) => {
            Step::To(Phase::Provisioning, Some(Effect::Provision))
        }
        (Phase::Running(instance), Event::Start) => Step::To(Phase::Running(instance.clone()), Some(Effect::Adopt)),
        (Phase::Deleting(reason), Event::Start) => Step::To(Phase::Deleting(*reason), Some(Effect::Remove)),
        (Phase::Discarding(failure), Event::Start) => {
            Step::To(Phase::Discarding(failure.clone()), Some(Effect::Remove))
        }
        (Phase::Gone(_) | Phase::Failed(_), Event::Start) => Step::Already,

        (Phase::Provisioning | Phase::Running(_), Event::Provisioned(instance)) => {
            Step::To(Phase::Running(instance), None)
        }
        (Phase::Provisioning | Phase::Running(_), Event::ProvisionFailed(failure)) => {
            Step::To(Phase::Discarding(failure), Some(Effect::Remove))
        }
        (
            Phase::Requested | Phase::Deleting(_) | Phase::Discarding(_) | Phase::Gone(_) | Phase::Failed(_),
            Event::Provisioned(_) | Event::ProvisionFailed(_),
        ) => Step::Already,

        (Phase::Requested, Event::End(reason)) => Step::To(Phase::Gone(reason), None),
        (Phase::Provisioning, Event::End(_)) => Step::Later,
        (Phase::Running(_), Event::End(reason)) => Step::To(Phase::Deleting(reason), Some(Effect::Remove)),
        (Phase::Deleting(_) | Phase::Discarding(_) | Phase::Gone(_) | Phase::Failed(_), Event::End(_)) => Step::Already,

        (Phase::Deleting(reason), Event::Removed) => Step::To(Phase::Gone(*reason), None),
        (Phase::Discarding(failure), Event::Removed) => Step::To(Phase::Failed(failure.clone()), None),
        (
            Phase::Requested | Phase::Provisioning | Phase::Running(_) | Phase::Gone(_) | Phase::Failed(_),
            Event::Removed,
        ) => Step::Already,

        // What is left of a lost sandbox (volumes, socket directory) is removed as well.
        (Phase::Running(_), Event::Vanished(failure)) => Step::To(Phase::Discarding(failure), Some(Effect::Remove)),
        (
            Phase::Requested
            | Phase::Provisioning
            | Phase::Deleting(_)
            | Phase::Discarding(_)
            | Phase::Gone(_)
            | Phase::Failed(_),
            Event::Vanished(_),
        ) => Step::Already,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{EndReason, Instance};
    use proptest::prelude::*;
    use sandbox_protocol::{Failure, FailureCode};

    fn instance() -> Instance {
        Instance { runtime: "runc".into(), image_digest: "sha256:1".into() }
    }

    fn failure() -> Failure {
        Failure::new(FailureCode::Engine, "no")
    }

    fn phases() -> Vec<Phase> {
        vec![
            Phase::Requested,
            Phase::Provisioning,
            Phase::Running(instance()),
            Phase::Deleting(EndReason::Deleted),
            Phase::Gone(EndReason::Deleted),
            Phase::Discarding(failure()),
            Phase::Failed(failure()),
        ]
    }

    fn events() -> Vec<Event> {
        vec![
            Event::Start,
            Event::Provisioned(instance()),
            Event::ProvisionFailed(failure()),
            Event::End(EndReason::Deleted),
            Event::Removed,
            Event::Vanished(failure()),
        ]
    }

    /// Every transition, as data: rows are phases, columns the events above.
    #[test]
    fn the_machine_is_this_table() {
        let name = |step: Step| match step {
            Step::To(phase, effect) => {
                let inner = match phase {
                    Phase::Discarding(_) => "discarding",
                    other => other.name(),
                };
                format!("{inner}{}", effect.map(|effect| format!("+{effect:?}")).unwrap_or_default())
            }
            Step::Already => "-".into(),
            Step::Later => "later".into(),
        };
        let table: Vec<String> = phases()
            .iter()
            .map(|phase| events().into_iter().map(|event| name(step(phase, event))).collect::<Vec<_>>().join(" | "))
            .collect();
        assert_eq!(
            table,
            [
                "provisioning+Provision | - | - | gone | - | -",
                "provisioning+Provision | running | discarding+Remove | later | - | -",
                "running+Adopt | running | discarding+Remove | deleting+Remove | - | discarding+Remove",
                "deleting+Remove | - | - | - | gone | -",
                "- | - | - | - | - | -",
                "discarding+Remove | - | - | - | failed | -",
                "- | - | - | - | - | -",
            ]
        );
    }

    /// A world in which an effect ends, well or badly, some time after it began.
    #[derive(Default)]
    struct World {
        under_way: Option<Effect>,
        container: bool,
    }

    impl World {
        fn finish(&mut self, well: bool) -> Option<Event> {
            let effect = self.under_way.take()?;
            Some(match (effect, well) {
                (Effect::Provision, true) => {
                    self.container = true;
                    Event::Provisioned(instance())
                }
                // A failed provisioning may leave a half-made container behind.
                (Effect::Provision, false) => {
                    self.container = true;
                    Event::ProvisionFailed(failure())
                }
                (Effect::Adopt, true) => Event::Provisioned(instance()),
                (Effect::Adopt, false) => {
                    self.container = false;
                    Event::Vanished(failure())
                }
                // A removal that fails is repeated until it succeeds.
                (Effect::Remove, _) => {
                    self.container = false;
                    Event::Removed
                }
            })
        }
    }

    proptest! {
        #[test]
        fn no_container_outlives_the_end_and_no_two_effects_overlap(
            choices in prop::collection::vec((0_u8..4, any::<bool>()), 1..60)
        ) {
            let mut phase = Phase::Requested;
            let mut world = World::default();
            let mut deferred = false;
            let choices = choices.into_iter().chain((0..8).flat_map(|_| [(1, true), (2, true)]));
            for (choice, well) in choices {
                let event = match choice {
                    // A restart forgets what was under way and begins anew.
                    0 => { world.under_way = None; Some(Event::Start) }
                    1 if world.under_way.is_none() => Some(Event::End(EndReason::Deleted)),
                    2 => world.finish(well),
                    3 if world.under_way.is_none() && phase == Phase::Requested => Some(Event::Start),
                    _ => None,
                };
                let Some(event) = event else { continue };
                match step(&phase, event) {
                    Step::To(next, effect) => {
                        prop_assert!(!phase.is_final(), "{phase:?} is final");
                        phase = next;
                        if let Some(effect) = effect {
                            prop_assert!(world.under_way.is_none(), "two effects at once");
                            world.under_way = Some(effect);
                        }
                    }
                    Step::Later => deferred = true,
                    Step::Already => {}
                }
                if phase.is_final() {
                    prop_assert!(!world.container, "a container outlived {phase:?}");
                    prop_assert!(world.under_way.is_none());
                }
            }
            prop_assert!(phase.is_final() || deferred, "an end was asked for eight times, yet it is {phase:?}");
        }
    }
}
