//! Sandboxes behind the gateway: who may enter, what an entered one offers, when it is over.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_fleet::keys::Standing as OnRecord;
use sandbox_fleet::ports::Sidecars;
use sandbox_fleet::{Departure, Fleet, Guest, NoGuest};
use sandbox_gateway::ports::{AuditEntry, Barred, Doors, OutsideError, Over, Pipe, Room, Standing};
use sandbox_outbound::egress::VisitError;
use sandbox_protocol::SandboxId;
use sandbox_protocol::exec::BEARER;
use sandbox_protocol::ssh::PublicKey;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::audit::Audit;
use crate::limits::RESUME_TIMEOUT;
use crate::outside::Proxy;

/// The doors of this operator's sandboxes.
#[derive(Clone)]
pub(crate) struct SandboxDoors {
    pub(crate) fleet: Fleet,
    pub(crate) sidecars: Arc<dyn Sidecars>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) audit: Audit,
    pub(crate) stop: CancellationToken,
}

/// A sandbox that somebody has entered.
struct SandboxRoom {
    doors: SandboxDoors,
    guest: Guest,
}

#[async_trait]
impl Doors for SandboxDoors {
    fn standing(&self, sandbox: SandboxId, key: &PublicKey) -> Option<Standing> {
        self.fleet.standing(sandbox, key).map(|standing| match standing {
            // Who proves to have it is told that it cannot be said yet.
            OnRecord::Open | OnRecord::Unsure => Standing::Open,
            OnRecord::Expired { at_block } => Standing::Expired { at_block },
        })
    }

    async fn enter(&self, sandbox: SandboxId, key: &PublicKey, resume: bool) -> Result<Box<dyn Room>, Barred> {
        if self.stop.is_cancelled() {
            return Err(Barred::Later);
        }
        let entered = if resume {
            let resuming = timeout(RESUME_TIMEOUT, self.fleet.guest_resuming(sandbox, key)).await;
            resuming.map_err(|_| Barred::NotResumed("it does not run yet".to_owned()))?
        } else {
            self.fleet.guest(sandbox, key)
        };
        let guest = entered.map_err(barred)?;
        Ok(Box::new(SandboxRoom { doors: self.clone(), guest }))
    }

    fn note(&self, entry: AuditEntry) {
        self.audit.note(entry);
    }
}

#[async_trait]
impl Room for SandboxRoom {
    async fn connect(&self) -> io::Result<Box<dyn Pipe>> {
        match self.doors.sidecars.connect(&self.guest.instance).await {
            Ok(pipe) => Ok(pipe),
            Err(error) => {
                self.doors.fleet.check(self.guest.sandbox.id).await;
                Err(io::Error::other(error))
            }
        }
    }

    fn authorization(&self) -> String {
        format!("{BEARER} {}", self.guest.instance.token.reveal())
    }

    async fn outside(&self, host: &str, port: u16) -> Result<Box<dyn Pipe>, OutsideError> {
        match self.doors.proxy.visit(self.guest.sandbox.id, host, port).await {
            Ok(pipe) => Ok(Box::new(pipe)),
            Err(VisitError::Refused(reason)) => {
                tracing::debug!(sandbox = %self.guest.sandbox.id, reason, "a forward was refused");
                Err(OutsideError::Forbidden)
            }
            Err(
                error @ (VisitError::Closed | VisitError::Busy | VisitError::Unreachable(_) | VisitError::Broken(_)),
            ) => Err(OutsideError::Unreachable(io::Error::other(error))),
        }
    }

    fn touch(&self) {
        self.guest.activity.touch();
    }

    async fn over(&self) -> Over {
        // An operator that ends lets go of its sandboxes, which is not their end.
        tokio::select! {
            biased;
            () = self.doors.stop.cancelled() => Over::Operator,
            departure = self.guest.departure() => match departure {
                Departure::Revoked => Over::Revoked,
                Departure::Expired => Over::Expired,
                Departure::Sandbox => Over::Sandbox,
                Departure::Keeper => Over::Operator,
            },
        }
    }
}

fn barred(reason: NoGuest) -> Barred {
    match reason {
        NoGuest::Stopped => Barred::Stopped,
        NoGuest::NotRunning(phase) => Barred::NotRunning(phase.to_owned()),
        NoGuest::NotResumed(failure) => Barred::NotResumed(failure.message),
        // It was open a moment ago.
        NoGuest::Stranger | NoGuest::Expired { .. } | NoGuest::Later => Barred::Later,
    }
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::Keeper;
    use sandbox_fleet::admission::Capacity;
    use sandbox_fleet::fakes::{FakeWorld, OWNER, instance, sandbox, ssh_key};
    use sandbox_fleet::request::Resources;

    use super::*;
    use crate::outside::OutsideConfig;
    use crate::places::Places;

    /// A sandbox that runs, to which one key opens the door.
    async fn doors() -> (SandboxDoors, tempfile::TempDir) {
        let resources = Resources { cpu_cores: 9, memory_mb: 9_000, disk_gb: 9 };
        let capacity = Capacity { sandboxes: 2, sandboxes_each_max: 2, resources, cpu_cores_each_max: 9 };
        let world = Arc::new(FakeWorld::default());
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        tokio::spawn(keeper.run(Vec::new(), CancellationToken::new()));
        let id = fleet.create(sandbox(0)).await.unwrap().id;
        fleet.admit_key(id, OWNER, ssh_key(1), None).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(&dir.path().join("run"), [1; 20].into(), 1).unwrap();
        let settings = std::collections::HashMap::new();
        let proxy = Arc::new(Proxy::new(&OutsideConfig::read(&settings).unwrap(), places).unwrap());
        let audit = Audit::open(dir.path()).unwrap();
        (SandboxDoors { fleet, sidecars: world, proxy, audit, stop: CancellationToken::new() }, dir)
    }

    async fn refusal(doors: &SandboxDoors, key: u8, resume: bool) -> Option<Barred> {
        doors.enter(sandbox(0).id, &ssh_key(key), resume).await.err()
    }

    #[tokio::test]
    async fn a_key_on_record_opens_the_running_sandbox_and_the_sidecars_word_is_given() {
        let (doors, _dir) = doors().await;
        let id = sandbox(0).id;
        assert_eq!(doors.standing(id, &ssh_key(1)), Some(Standing::Open));
        assert_eq!(doors.standing(id, &ssh_key(2)), None);
        assert_eq!(doors.standing(sandbox(1).id, &ssh_key(1)), None);
        let room = doors.enter(id, &ssh_key(1), false).await.ok().unwrap();
        assert_eq!(room.authorization(), format!("Bearer {}", instance(id).token.reveal()));
        assert!(room.connect().await.is_err(), "nothing speaks HTTP in this world");
        assert!(
            matches!(room.outside("example.com", 443).await, Err(OutsideError::Unreachable(_))),
            "it has no way out"
        );
    }

    #[tokio::test]
    async fn a_stopped_sandbox_is_entered_by_who_has_it_resumed() {
        let (doors, _dir) = doors().await;
        let room = doors.enter(sandbox(0).id, &ssh_key(1), false).await.ok().unwrap();
        doors.fleet.stop(sandbox(0).id, OWNER).await.unwrap();
        assert_eq!(room.over().await, Over::Sandbox);
        assert_eq!(refusal(&doors, 1, false).await, Some(Barred::Stopped));
        assert_eq!(refusal(&doors, 1, true).await, None);
        doors.fleet.delete(sandbox(0).id, OWNER).await.unwrap();
        assert_eq!(refusal(&doors, 1, true).await, Some(Barred::NotRunning("gone".to_owned())));
    }

    #[tokio::test]
    async fn a_revoked_key_ends_the_stay_and_so_does_the_operators_end() {
        let (doors, _dir) = doors().await;
        let id = sandbox(0).id;
        let room = doors.enter(id, &ssh_key(1), false).await.ok().unwrap();
        doors.fleet.revoke_key(id, OWNER, ssh_key(1)).await.unwrap();
        assert_eq!(room.over().await, Over::Revoked);
        doors.fleet.admit_key(id, OWNER, ssh_key(1), None).await.unwrap();
        let room = doors.enter(id, &ssh_key(1), false).await.ok().unwrap();
        doors.stop.cancel();
        assert_eq!(room.over().await, Over::Operator);
        assert_eq!(refusal(&doors, 1, false).await, Some(Barred::Later));
    }
}
