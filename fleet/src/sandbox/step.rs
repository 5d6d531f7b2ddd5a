//! The transition function of a sandbox's life.

use super::{Effect, EndReason, Event, Phase, Rest, StopReason};
use crate::request::SnapshotUri;

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
    match event {
        Event::Start => start(phase),
        Event::Check => match phase {
            Phase::Running(instance) => Step::To(Phase::Running(instance.clone()), Some(Effect::Adopt)),
            Phase::Requested
            | Phase::Provisioning
            | Phase::Stopping(_)
            | Phase::Stopped(_)
            | Phase::Resuming(..)
            | Phase::Deleting(_)
            | Phase::Gone(_)
            | Phase::Discarding(_)
            | Phase::Failed(_) => Step::Already,
        },
        Event::Stop(reason) => stop(phase, reason),
        Event::Resume(from) => resume(phase, from),
        Event::End(reason) => end(phase, reason),
        Event::Provisioned(_)
        | Event::ProvisionFailed(_)
        | Event::Halted
        | Event::ResumeFailed(_)
        | Event::Removed
        | Event::Vanished(_) => outcome(phase, event),
    }
}

/// Beginning, and picking up after a restart: every effect may be repeated.
fn start(phase: &Phase) -> Step {
    match phase {
        Phase::Requested | Phase::Provisioning => Step::To(Phase::Provisioning, Some(Effect::Provision)),
        Phase::Running(_) => Step::To(phase.clone(), Some(Effect::Adopt)),
        Phase::Stopping(_) => Step::To(phase.clone(), Some(Effect::Halt)),
        Phase::Resuming(..) => Step::To(phase.clone(), Some(Effect::Resume)),
        Phase::Deleting(_) | Phase::Discarding(_) => Step::To(phase.clone(), Some(Effect::Remove)),
        Phase::Stopped(_) | Phase::Gone(_) | Phase::Failed(_) => Step::Already,
    }
}

fn stop(phase: &Phase, reason: StopReason) -> Step {
    match phase {
        Phase::Running(instance) => Step::To(Phase::Stopping(Rest::new(instance.clone(), reason)), Some(Effect::Halt)),
        Phase::Requested | Phase::Provisioning | Phase::Resuming(..) => Step::Later,
        Phase::Stopping(_)
        | Phase::Stopped(_)
        | Phase::Deleting(_)
        | Phase::Gone(_)
        | Phase::Discarding(_)
        | Phase::Failed(_) => Step::Already,
    }
}

fn resume(phase: &Phase, from: Option<SnapshotUri>) -> Step {
    match phase {
        Phase::Stopped(rest) => Step::To(Phase::Resuming(rest.clone(), from), Some(Effect::Resume)),
        Phase::Stopping(_) => Step::Later,
        Phase::Requested
        | Phase::Provisioning
        | Phase::Running(_)
        | Phase::Resuming(..)
        | Phase::Deleting(_)
        | Phase::Gone(_)
        | Phase::Discarding(_)
        | Phase::Failed(_) => Step::Already,
    }
}

fn end(phase: &Phase, reason: EndReason) -> Step {
    match phase {
        Phase::Requested => Step::To(Phase::Gone(reason), None),
        Phase::Provisioning | Phase::Stopping(_) | Phase::Resuming(..) => Step::Later,
        Phase::Running(_) | Phase::Stopped(_) => Step::To(Phase::Deleting(reason), Some(Effect::Remove)),
        Phase::Deleting(_) | Phase::Discarding(_) | Phase::Gone(_) | Phase::Failed(_) => Step::Already,
    }
}

/// What became of an effect. One that speaks of what no longer matters changes nothing.
fn outcome(phase: &Phase, event: Event) -> Step {
    match (phase, event) {
        (Phase::Provisioning | Phase::Running(_) | Phase::Resuming(..), Event::Provisioned(instance)) => {
            Step::To(Phase::Running(instance), None)
        }
        (Phase::Provisioning, Event::ProvisionFailed(failure)) => {
            Step::To(Phase::Discarding(failure), Some(Effect::Remove))
        }
        (Phase::Stopping(rest), Event::Halted) => Step::To(Phase::Stopped(rest.clone()), None),
        // It may have been started before it failed.
        (Phase::Resuming(rest, _), Event::ResumeFailed(failure)) => {
            Step::To(Phase::Stopping(rest.clone().after(failure)), Some(Effect::Halt))
        }
        (Phase::Deleting(reason), Event::Removed) => Step::To(Phase::Gone(*reason), None),
        (Phase::Discarding(failure), Event::Removed) => Step::To(Phase::Failed(failure.clone()), None),
        // What is left of a lost sandbox (its disk, its socket directory) is removed as well.
        (Phase::Running(_) | Phase::Stopping(_) | Phase::Resuming(..), Event::Vanished(failure)) => {
            Step::To(Phase::Discarding(failure), Some(Effect::Remove))
        }
        (
            Phase::Requested
            | Phase::Provisioning
            | Phase::Running(_)
            | Phase::Stopping(_)
            | Phase::Stopped(_)
            | Phase::Resuming(..)
            | Phase::Deleting(_)
            | Phase::Gone(_)
            | Phase::Discarding(_)
            | Phase::Failed(_),
            _,
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
        Instance { runtime: "runc".into(), image_digest: "sha256:1".into(), ..Instance::default() }
    }

    fn failure() -> Failure {
        Failure::new(FailureCode::Engine, "no")
    }

    fn rest() -> Rest {
        Rest::new(instance(), StopReason::Asked)
    }

    fn phases() -> Vec<Phase> {
        vec![
            Phase::Requested,
            Phase::Provisioning,
            Phase::Running(instance()),
            Phase::Stopping(rest()),
            Phase::Stopped(rest()),
            Phase::Resuming(rest(), None),
            Phase::Deleting(EndReason::Deleted),
            Phase::Gone(EndReason::Deleted),
            Phase::Discarding(failure()),
            Phase::Failed(failure()),
        ]
    }

    fn events() -> Vec<Event> {
        vec![
            Event::Start,
            Event::Check,
            Event::Provisioned(instance()),
            Event::ProvisionFailed(failure()),
            Event::Stop(StopReason::Asked),
            Event::Halted,
            Event::Resume(None),
            Event::ResumeFailed(failure()),
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
                "provisioning+Provision | - | - | - | later | - | - | - | gone | - | -",
                "provisioning+Provision | - | running | discarding+Remove | later | - | - | - | later | - | -",
                "running+Adopt | running+Adopt | running | - | stopping+Halt | - | - | - | deleting+Remove | - | discarding+Remove",
                "stopping+Halt | - | - | - | - | stopped | later | - | later | - | discarding+Remove",
                "- | - | - | - | - | - | resuming+Resume | - | deleting+Remove | - | -",
                "resuming+Resume | - | running | - | later | - | - | stopping+Halt | later | - | discarding+Remove",
                "deleting+Remove | - | - | - | - | - | - | - | - | gone | -",
                "- | - | - | - | - | - | - | - | - | - | -",
                "discarding+Remove | - | - | - | - | - | - | - | - | failed | -",
                "- | - | - | - | - | - | - | - | - | - | -",
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
        /// Only looking may be broken off; making and removing must have ended before the next effect begins.
        fn begin(&mut self, effect: Effect) {
            assert!(matches!(self.under_way, None | Some(Effect::Adopt)), "{effect:?} during {:?}", self.under_way);
            self.under_way = Some(effect);
        }

        fn finish(&mut self, well: bool) -> Option<Event> {
            Some(match (self.under_way.take()?, well) {
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
                (Effect::Halt, true) => Event::Halted,
                (Effect::Halt, false) => {
                    self.container = false;
                    Event::Vanished(failure())
                }
                (Effect::Resume, true) => Event::Provisioned(instance()),
                (Effect::Resume, false) => Event::ResumeFailed(failure()),
                // A removal that fails is repeated until it succeeds.
                (Effect::Remove, _) => {
                    self.container = false;
                    Event::Removed
                }
            })
        }
    }

    /// The driver's rules: what must wait is said again after each change; a restart forgets everything but the phase.
    struct Model {
        phase: Phase,
        world: World,
        later: Vec<Event>,
    }

    impl Model {
        fn restart(&mut self) {
            self.world.under_way = None;
            self.later.clear();
            self.tell(Event::Start);
        }

        fn tell(&mut self, event: Event) {
            match step(&self.phase, event.clone()) {
                Step::Already => {}
                Step::Later => self.later.push(event),
                Step::To(next, effect) => {
                    assert!(!self.phase.is_final(), "{:?} is final", self.phase);
                    self.phase = next;
                    if let Some(effect) = effect {
                        self.world.begin(effect);
                    }
                    for event in std::mem::take(&mut self.later) {
                        self.tell(event);
                    }
                }
            }
            assert!(!(self.phase.is_final() && self.world.container), "a container outlived {:?}", self.phase);
        }

        fn finish(&mut self, well: bool) {
            if let Some(outcome) = self.world.finish(well) {
                self.tell(outcome);
            }
        }
    }

    proptest! {
        #[test]
        fn no_container_outlives_the_end_no_two_effects_overlap_and_an_end_always_comes(
            choices in prop::collection::vec((0_u8..8, any::<bool>()), 0..80)
        ) {
            let mut model = Model { phase: Phase::Requested, world: World::default(), later: Vec::new() };
            model.restart();
            for (choice, well) in choices {
                match choice {
                    0 => model.restart(),
                    1 => model.tell(Event::End(EndReason::Deleted)),
                    2 => model.tell(Event::Check),
                    3 => model.tell(Event::Stop(StopReason::Idle)),
                    4 => model.tell(Event::Resume(None)),
                    _ => model.finish(well),
                }
            }
            model.tell(Event::End(EndReason::Deleted));
            for _ in 0..6 {
                model.finish(true);
            }
            prop_assert!(model.phase.is_final(), "asked to end, yet it is {:?}", model.phase);
        }
    }
}
