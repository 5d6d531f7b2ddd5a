//! Turns: bounds kept, orders kept, nobody left out.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { jobs: 8, jobs_each: 6, jobs_sandbox: 3, waiting: 60, waiting_each: 40 };

fn ticket(caller: u8, call: u64, sandbox: Option<u64>, manner: Manner) -> Ticket {
    let sandbox = sandbox.map(|call| SandboxId { origin: CallKey { service: u64::from(caller), call }, slot: 0 });
    let key = CallKey { service: u64::from(caller), call };
    Ticket { key, job: 10, caller: Address::repeat_byte(caller), sandbox, manner }
}

fn beside(caller: u8, call: u64) -> Ticket {
    ticket(caller, call, Some(0), Manner::Beside)
}

fn taken(fair: &mut Fair) -> Vec<u64> {
    std::iter::from_fn(|| fair.next()).map(|ticket| ticket.key.call).collect()
}

#[test]
fn one_call_of_another_customer_does_not_wait_for_a_thousand() {
    let mut fair = Fair::new(Bounds::of_jobs(4, 4, 2_000, 2_000));
    for call in 0..1_000 {
        fair.offer(beside(1, call));
    }
    assert_eq!(taken(&mut fair), [0, 1, 2], "the last quarter of the places is for others");
    fair.offer(beside(2, 7));
    assert_eq!(taken(&mut fair), [7]);
}

#[test]
fn what_changes_a_sandbox_comes_after_what_was_asked_before_and_before_what_was_asked_after() {
    let mut fair = Fair::new(BOUNDS);
    fair.offer(beside(1, 1));
    fair.offer(ticket(1, 2, Some(0), Manner::InTurn));
    fair.offer(ticket(1, 3, Some(0), Manner::InTurn));
    fair.offer(beside(1, 4));
    fair.offer(ticket(1, 5, Some(9), Manner::Beside));
    assert_eq!(taken(&mut fair), [1, 5, 2], "a running command holds up no delete, one sandbox no other");
    let done = |fair: &mut Fair, call| fair.done(CallKey { service: 1, call });
    done(&mut fair, 1);
    assert!(taken(&mut fair).is_empty());
    done(&mut fair, 2);
    assert_eq!(taken(&mut fair), [3]);
    done(&mut fair, 3);
    assert_eq!(taken(&mut fair), [4]);
}

#[test]
fn keys_wait_for_nothing_but_each_other() {
    let mut fair = Fair::new(BOUNDS);
    fair.offer(ticket(1, 1, Some(0), Manner::InTurn));
    fair.offer(beside(1, 2));
    fair.offer(ticket(1, 3, Some(0), Manner::Aside));
    fair.offer(ticket(1, 4, Some(0), Manner::Aside));
    fair.offer(ticket(1, 5, Some(9), Manner::Aside));
    assert_eq!(taken(&mut fair), [1, 3, 5], "a long snapshot holds up no key, one key the next");
    assert!(fair.withdraw(CallKey { service: 1, call: 2 }), "it waits");
    fair.done(CallKey { service: 1, call: 3 });
    assert_eq!(taken(&mut fair), [4]);
    for call in [1, 4, 5] {
        fair.done(CallKey { service: 1, call });
    }
    assert!(fair.customers.is_empty(), "nothing is kept of what has ended");
}

#[test]
fn one_more_than_there_is_room_for_is_told_so_and_a_repeat_is_known() {
    let mut fair = Fair::new(Bounds { waiting: 3, waiting_each: 2, ..BOUNDS });
    let offers = [beside(1, 1), beside(1, 1), beside(1, 2), beside(1, 3), beside(2, 1), beside(3, 1)];
    let said = offers.map(|ticket| fair.offer(ticket));
    assert_eq!(said, [Offered::Taken, Offered::Known, Offered::Taken, Offered::Full, Offered::Taken, Offered::Full]);
    fair.next();
    assert_eq!(fair.offer(beside(1, 1)), Offered::Known, "it is worked on");
    assert_eq!(fair.offer(beside(1, 3)), Offered::Taken);
}

#[test]
fn a_call_that_was_taken_back_does_not_come() {
    let mut fair = Fair::new(BOUNDS);
    fair.offer(beside(1, 1));
    fair.offer(beside(1, 2));
    assert!(fair.withdraw(CallKey { service: 1, call: 1 }));
    assert!(!fair.withdraw(CallKey { service: 1, call: 1 }));
    assert_eq!(taken(&mut fair), [2]);
    assert!(!fair.withdraw(CallKey { service: 1, call: 2 }), "it is worked on");
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Offer(Ticket),
    Next,
    Done(usize),
    Withdraw(u8, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let manner = prop_oneof![4 => Just(Manner::Beside), 1 => Just(Manner::InTurn), 1 => Just(Manner::Aside)];
    let sandbox = prop_oneof![1 => Just(None), 4 => (0..3_u64).prop_map(Some)];
    let offered = (1..5_u8, 0..200_u64, sandbox, manner);
    prop_oneof![
        5 => offered.prop_map(|(caller, call, sandbox, manner)| Step::Offer(ticket(caller, call, sandbox, manner))),
        4 => Just(Step::Next),
        3 => (0..BOUNDS.jobs).prop_map(Step::Done),
        1 => (1..5_u8, 0..200_u64).prop_map(|(caller, call)| Step::Withdraw(caller, call)),
    ]
}

/// What is known from outside: who waits in which order, and who runs.
#[derive(Default)]
struct Model {
    waiting: Vec<Ticket>,
    running: Vec<Ticket>,
}

impl Model {
    fn same_lane(a: &Ticket, b: &Ticket) -> bool {
        a.caller == b.caller && a.lane() == b.lane()
    }

    fn begin(&mut self, ticket: Ticket) {
        let lane = |other: &&Ticket| Self::same_lane(&ticket, other);
        let first = self.waiting.iter().find(lane).copied();
        assert_eq!(first, Some(ticket), "calls of one sandbox begin in their order");
        let beside: Vec<_> = self.running.iter().filter(lane).collect();
        assert!(beside.iter().all(|other| other.manner == Manner::Beside), "nothing begins while it is changed");
        if ticket.sandbox.is_some() && ticket.manner == Manner::Beside {
            assert!(beside.len() < BOUNDS.jobs_sandbox);
        }
        self.waiting.retain(|other| other.key != ticket.key);
        self.running.push(ticket);
        assert!(self.running.len() <= BOUNDS.jobs);
        let his = self.running.iter().filter(|other| other.caller == ticket.caller).count();
        assert!(his <= BOUNDS.jobs_each);
    }

    fn knows(&self, ticket: &Ticket) -> bool {
        self.waiting.iter().chain(&self.running).any(|known| known.key == ticket.key)
    }
}

proptest! {
    #[test]
    fn bounds_and_orders_hold_whatever_happens_and_everything_taken_ends(steps in prop::collection::vec(step(), 0..400)) {
        let (mut fair, mut model) = (Fair::new(BOUNDS), Model::default());
        for step in steps {
            match step {
                Step::Offer(ticket) => match fair.offer(ticket) {
                    Offered::Taken => { prop_assert!(!model.knows(&ticket)); model.waiting.push(ticket); }
                    Offered::Known => prop_assert!(model.knows(&ticket)),
                    Offered::Full => prop_assert!(model.waiting.len() >= BOUNDS.waiting_each),
                },
                Step::Next => if let Some(ticket) = fair.next() { model.begin(ticket) },
                Step::Done(index) => if index < model.running.len() { fair.done(model.running.remove(index).key) },
                Step::Withdraw(service, call) => {
                    let key = CallKey { service: service.into(), call };
                    let waits = model.waiting.iter().any(|ticket| ticket.key == key);
                    prop_assert_eq!(fair.withdraw(key), waits);
                    model.waiting.retain(|ticket| ticket.key != key);
                }
            }
            prop_assert_eq!((fair.waiting(), fair.running()), (model.waiting.len(), model.running.len()));
        }
        // No call is left for ever: once those that run end, all that wait come.
        while fair.waiting() > 0 {
            while let Some(ticket) = fair.next() { model.begin(ticket) }
            prop_assert!(!model.running.is_empty(), "something always can run");
            for ticket in model.running.drain(..) { fair.done(ticket.key) }
        }
        prop_assert!(fair.customers.values().all(|customer| customer.waiting == 0));
    }

    #[test]
    fn nobody_waits_for_more_than_one_turn_of_everybody_else(counts in prop::collection::vec(1..50_u64, 2..6)) {
        let mut fair = Fair::new(Bounds::of_jobs(1, 1, 1_000, 1_000));
        for (caller, count) in (1_u8..).zip(&counts) {
            for call in 0..*count { fair.offer(beside(caller, call)); }
        }
        let mut since: HashMap<Address, usize> = HashMap::new();
        while let Some(ticket) = fair.next() {
            since.values_mut().for_each(|turns| *turns += 1);
            prop_assert!(since.insert(ticket.caller, 0).is_none_or(|turns| turns <= counts.len()));
            fair.done(ticket.key);
        }
    }
}
