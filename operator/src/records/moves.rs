//! Moves of negotiations that are through, until their call is answered: nobody argues about them twice.

use alloy::primitives::B256;
use sandbox_fleet::negotiation::Finished;
use sandbox_protocol::CallKey;

use super::writer::Write;
use super::{CallRecord, Records, RecordsError, indexed};

/// Moves by call, its inputs, and their places among the moves.
pub(super) const MOVES: &[u8] = b"move/";

/// Which move: another call that comes to have the same id has other inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MovePlace {
    /// The call.
    pub(crate) call: CallKey,
    /// keccak256 of its inputs.
    pub(crate) inputs_hash: B256,
    /// Among its moves.
    pub(crate) index: u32,
}

impl MovePlace {
    fn key(self) -> Vec<u8> {
        [indexed(MOVES, self.call).as_slice(), self.inputs_hash.as_slice(), &self.index.to_be_bytes()].concat()
    }
}

impl Records {
    /// What came of a move, if it is through.
    pub(crate) fn finished_move(&self, place: MovePlace) -> Result<Option<Finished>, RecordsError> {
        self.read(&place.key())
    }

    /// Writes down what came of a move.
    pub(crate) async fn finish_move(&self, place: MovePlace, finished: &Finished) -> Result<(), RecordsError> {
        let mut write = Write { what: "a move", ..Write::default() };
        let (key, value) = (place.key(), self.encode(&place.key(), finished)?);
        write.batch.insert(key, value);
        self.writer.write(write).await
    }

    /// Takes out the moves of a call that is answered.
    pub(super) fn remove_moves(&self, write: &mut Write, call: &CallRecord) -> Result<(), RecordsError> {
        self.remove_moves_of(write, indexed(&[], call.key).as_slice())
    }

    /// The same of the call with this key among calls.
    pub(super) fn remove_moves_of(&self, write: &mut Write, call: &[u8]) -> Result<(), RecordsError> {
        for key in self.tree.scan_prefix([MOVES, call].concat()).keys() {
            write.batch.remove(key.map_err(RecordsError::Read)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;
    use sandbox_protocol::agent::negotiation::Move;
    use sandbox_protocol::{Failure, FailureCode};

    use super::super::Progress;
    use super::*;

    const CALL: CallKey = CallKey { service: 1, call: 2 };

    fn place(call: CallKey, inputs: u8, index: u32) -> MovePlace {
        MovePlace { call, inputs_hash: B256::repeat_byte(inputs), index }
    }

    fn finished(why: &str) -> Finished {
        let one = Move { move_id: "m1".into(), content: "buy".into() };
        Finished::failed(&one, Failure::new(FailureCode::Engine, why))
    }

    #[tokio::test]
    async fn moves_survive_a_restart_and_are_those_of_their_call_alone() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            records.finish_move(place(CALL, 1, 0), &finished("a")).await.unwrap();
            records.finish_move(place(CALL, 1, 1), &finished("b")).await.unwrap();
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        assert_eq!(records.finished_move(place(CALL, 1, 1)).unwrap(), Some(finished("b")));
        let other = CallKey { call: 3, ..CALL };
        for nowhere in [place(CALL, 2, 0), place(CALL, 1, 2), place(other, 1, 0)] {
            assert_eq!(records.finished_move(nowhere).unwrap(), None);
        }
    }

    #[tokio::test]
    async fn moves_go_with_the_call_that_they_are_of() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open_keeping(dir.path(), (1, 1, 1)).unwrap();
        let call = |number: u64| {
            let key = CallKey { call: number, ..CALL };
            CallRecord::seen(key, 12, Address::ZERO, vec![1].into(), number)
        };
        for number in 1..=2 {
            let dropped = Progress::Dropped { reason: "late".into() };
            records.put_call(&CallRecord { progress: dropped, ..call(number) }).await.unwrap();
            let place = MovePlace { inputs_hash: call(number).inputs_hash, ..place(call(number).key, 0, 0) };
            records.finish_move(place, &finished("a")).await.unwrap();
        }
        records.take_in(&[], 9).await.unwrap();
        assert_eq!(records.tree.scan_prefix(MOVES).count(), 1, "the older call was pruned");
    }
}
