//! Every bound of the fleet's own. Names end in their unit and `_MAX`, `_MIN` or `_DEFAULT`.

use std::time::Duration;

/// Commands that wait for the keeper; the sender then waits itself.
pub const KEEPER_QUEUE_MAX: usize = 256;
/// Sandboxes that ended and are still known by what became of them.
pub const ENDED_SANDBOXES_MAX: usize = 4_096;
/// Commands that wait for one sandbox's driver.
pub const DRIVER_QUEUE_MAX: usize = 32;
/// First pause before an effect that failed for the engine's reasons is tried again; it doubles.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(200);
/// Longest such pause.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
