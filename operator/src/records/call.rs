//! A call's record: what was asked, and how far the answer is.

use alloy::primitives::{Address, B256, Bytes, keccak256};
use sandbox_protocol::receipt::SignedReceipt;
use sandbox_protocol::{CallKey, FailureCode};
use serde::{Deserialize, Serialize};

/// A call that this operator must answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallRecord {
    /// Which call.
    pub(crate) key: CallKey,
    /// Job id.
    pub(crate) job: u8,
    /// Who asked.
    pub(crate) caller: Address,
    /// What was asked.
    pub(crate) inputs: Bytes,
    /// keccak256 of the inputs.
    pub(crate) inputs_hash: B256,
    /// Block of the call.
    pub(crate) block: u64,
    /// How far it is.
    pub(crate) progress: Progress,
}

/// How far a call is. Each step is on disk before the next begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Progress {
    /// Taken in.
    Seen,
    /// Its effect may have begun.
    Begun {
        /// Head of the chain then.
        block: u64,
    },
    /// Its answer is fixed and can be had over HTTP.
    Answered(Answer),
    /// Its receipt is on chain.
    Settled {
        /// The answer.
        answer: Answer,
        /// The transaction, where it was this process that sent it.
        transaction: Option<B256>,
    },
    /// The chain will never take its receipt; its caller can have the answer all the same.
    Refused {
        /// The answer.
        answer: Answer,
        /// What the chain said.
        reason: String,
    },
    /// It is not, or no more, this operator's to answer.
    Dropped {
        /// Why.
        reason: String,
    },
}

/// The answer of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The ABI-encoded response, or JobError.
    pub(crate) response: Bytes,
    /// Why it was not done.
    pub(crate) failure: Option<FailureCode>,
    /// What was signed.
    pub(crate) receipt: SignedReceipt,
}

impl CallRecord {
    /// Whether nothing goes on in its name any more: it is answered, or never will be from here.
    pub(crate) fn is_over(&self) -> bool {
        self.answer().is_some() || self.progress.is_final()
    }

    /// What its execution or run is called in its sandbox. The inputs are in it: another call that comes to have the same id
    /// after a fork is another execution.
    pub(crate) fn execution(&self) -> String {
        let CallKey { service, call } = self.key;
        format!("call-{service}-{call}-{}", hex::encode(&self.inputs_hash[..8]))
    }

    /// A call as its event tells it.
    pub(crate) fn seen(key: CallKey, job: u8, caller: Address, inputs: Bytes, block: u64) -> Self {
        let inputs_hash = keccak256(&inputs);
        Self { key, job, caller, inputs, inputs_hash, block, progress: Progress::Seen }
    }

    /// Whether the other is this call. An id alone does not say so: a chain that takes a block back may give it to another call.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let asked = |call: &Self| (call.key, call.job, call.caller, call.inputs_hash);
        asked(self) == asked(other)
    }

    /// The answer, once there is one.
    pub(crate) const fn answer(&self) -> Option<&Answer> {
        match &self.progress {
            Progress::Answered(answer) | Progress::Settled { answer, .. } | Progress::Refused { answer, .. } => {
                Some(answer)
            }
            Progress::Seen | Progress::Begun { .. } | Progress::Dropped { .. } => None,
        }
    }
}

impl Progress {
    /// Its name.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Begun { .. } => "begun",
            Self::Answered(_) => "answered",
            Self::Settled { .. } => "settled",
            Self::Refused { .. } => "refused",
            Self::Dropped { .. } => "dropped",
        }
    }

    /// Whether nothing is left to be done.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::Settled { .. } | Self::Refused { .. } | Self::Dropped { .. })
    }
}
