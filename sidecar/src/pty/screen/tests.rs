//! The screen against viewers who remember everything they were told.

use proptest::prelude::*;
use sandbox_protocol::limits::PTY_KEPT_BYTES;

use super::*;

const SIZE: Size = Size { cols: 80, rows: 24 };

fn byte(offset: u64) -> u8 {
    (offset % 251) as u8
}

fn show(screen: &mut Screen, length: usize) {
    let (_, end) = screen.offsets();
    let bytes: Vec<u8> = (end..end + length as u64).map(byte).collect();
    screen.show(&bytes);
}

fn wish(since: Option<u64>, writer: WriterWish) -> AttachQuery {
    AttachQuery { since, writer }
}

/// A viewer, as it understands what it is told.
#[derive(Debug)]
struct Known {
    id: ViewerId,
    offset: u64,
    acked: Option<u64>,
    writer: bool,
    size: Size,
    ended: bool,
}

impl Known {
    fn attach(screen: &mut Screen, wish: AttachQuery) -> Option<Self> {
        let (id, offset) = screen.attach(wish).ok()?;
        let (writer, size) = (screen.is_writer(id), screen.size());
        Some(Self { id, offset, acked: None, writer, size, ended: false })
    }

    /// Takes in the next thing, if there is one.
    fn hear(&mut self, screen: &mut Screen) -> bool {
        let Some(told) = screen.next(self.id) else { return false };
        match told {
            Told::Bytes(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= PTY_CHUNK_BYTES_MAX);
                assert!(bytes.iter().zip(self.offset..).all(|(found, offset)| *found == byte(offset)));
                self.offset += bytes.len() as u64;
                assert!(self.acked.is_none_or(|acked| self.offset <= acked + PTY_WINDOW_BYTES));
            }
            Told::Message(ServerMessage::Gap { from, to }) => {
                assert!(from == self.offset && to > from);
                (self.offset, self.acked) = (to, self.acked.map(|_| to));
            }
            Told::Message(ServerMessage::Writer { yours }) => {
                assert_ne!(self.writer, yours);
                self.writer = yours;
            }
            Told::Message(ServerMessage::Resized { cols, rows }) => self.size = Size { cols, rows },
            Told::Message(ServerMessage::Exit { .. }) => assert_eq!(self.offset, screen.offsets().1),
            Told::Message(ServerMessage::Refused { .. } | ServerMessage::Hello { .. }) => {}
            Told::End(_) => {
                self.ended = true;
                return false;
            }
        }
        true
    }
}

#[derive(Debug, Clone)]
enum Step {
    Show(usize),
    Hear(usize, usize),
    Ack(usize),
    Attach(u8),
    Leave(usize),
    Take(usize),
    Resize(u16),
    LetGo,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..100_000).prop_map(Step::Show),
        4 => (0usize..9, 1usize..9).prop_map(|(who, times)| Step::Hear(who, times)),
        2 => (0usize..9).prop_map(Step::Ack),
        2 => any::<u8>().prop_map(Step::Attach),
        1 => (0usize..9).prop_map(Step::Leave),
        1 => (0usize..9).prop_map(Step::Take),
        1 => (1u16..200).prop_map(Step::Resize),
        1 => Just(Step::LetGo),
    ]
}

fn take(screen: &mut Screen, known: &mut Vec<Known>, step: Step) {
    let count = known.len().max(1);
    match step {
        Step::Show(length) => show(screen, length),
        Step::Hear(who, times) => {
            if let Some(viewer) = known.get_mut(who % count) {
                for _ in 0..times {
                    viewer.hear(screen);
                }
            }
        }
        Step::Ack(who) => {
            if let Some(viewer) = known.get_mut(who % count) {
                viewer.acked = Some(viewer.offset);
                screen.ack(viewer.id, viewer.offset);
            }
        }
        Step::Attach(kind) => {
            let since = [None, Some(0), Some(screen.offsets().1 / 2)][usize::from(kind % 3)];
            let writer = [WriterWish::Free, WriterWish::Take, WriterWish::No][usize::from(kind / 3 % 3)];
            known.extend(Known::attach(screen, wish(since, writer)));
        }
        Step::Leave(who) if !known.is_empty() => screen.leave(known.remove(who % count).id),
        Step::Take(who) => {
            if let Some(viewer) = known.get(who % count) {
                screen.take_writer(viewer.id);
            }
        }
        Step::Resize(cols) => screen.resized(Size { cols, rows: 24 }),
        Step::LetGo => {
            screen.let_go();
            assert_eq!(screen.held(), Held::No);
        }
        Step::Leave(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_viewer_gets_every_byte_in_order_or_is_told_which_it_does_not_get(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut screen, mut known) = (Screen::new(SIZE), Vec::new());
        for step in steps {
            take(&mut screen, &mut known, step);
            prop_assert!(known.len() <= PTY_VIEWERS_MAX);
        }
        screen.end(PtyEnd { cause: PtyCause::Exited, exit_code: Some(0), signal: None });
        for viewer in &mut known {
            while viewer.hear(&mut screen) || !viewer.ended {
                screen.ack(viewer.id, viewer.offset);
                viewer.acked = Some(viewer.offset);
            }
            prop_assert_eq!(viewer.offset, screen.offsets().1);
            prop_assert_eq!((viewer.writer, viewer.size), (screen.is_writer(viewer.id), screen.size()));
        }
        prop_assert!(known.iter().filter(|viewer| viewer.writer).count() <= 1);
    }
}

#[test]
fn one_that_is_behind_holds_up_programs_a_byte_beyond_its_window() {
    let mut screen = Screen::new(SIZE);
    let (id, _) = screen.attach(AttachQuery::default()).unwrap();
    show(&mut screen, PTY_WINDOW_BYTES as usize);
    assert_eq!(screen.held(), Held::No);
    show(&mut screen, 1);
    assert_eq!(screen.held(), Held::ByAll);
    let (other, _) = screen.attach(AttachQuery::default()).unwrap();
    assert_eq!(screen.held(), Held::BySome);
    screen.let_go();
    assert_eq!(screen.held(), Held::No);
    // It is waited for again once it has caught up.
    while screen.next(id).is_some() {}
    show(&mut screen, PTY_WINDOW_BYTES as usize + 1);
    while screen.next(other).is_some() {}
    assert_eq!(screen.held(), Held::BySome);
    screen.typing(id, true);
    assert_eq!(screen.held(), Held::No, "who waits for its input to be taken cannot say what it has read");
    screen.typing(id, false);
    screen.ending();
    assert_eq!(screen.held(), Held::No);
}

#[test]
fn one_whose_window_is_closed_is_told_nothing_but_what_concerns_it() {
    let mut screen = Screen::new(SIZE);
    let (id, _) = screen.attach(AttachQuery::default()).unwrap();
    screen.ack(id, 0);
    show(&mut screen, 2 * PTY_KEPT_BYTES);
    let mut got = 0;
    while let Some(told) = screen.next(id) {
        match told {
            Told::Bytes(bytes) => got += bytes.len() as u64,
            Told::Message(gap) => assert!(matches!(gap, ServerMessage::Gap { from: 0, .. })),
            Told::End(_) => panic!("no end"),
        }
    }
    assert_eq!(got, PTY_WINDOW_BYTES);
    screen.resized(Size { cols: 1, rows: 1 });
    assert!(matches!(screen.next(id), Some(Told::Message(ServerMessage::Resized { .. }))));
    assert_eq!(screen.next(id), None);
}
