//! The demo of every job: three operators, the 17 jobs that there are, and the 25 ids that are none.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use sandbox_protocol::Job;
use sandbox_sdk::devchain::STAKED;
use sandbox_tests::all_jobs::{Row, Trio};
use sandbox_tests::ground::Ground;

use crate::demo::nothing_left;
use crate::steps::Steps;

/// Has all of it done, and fails with the first thing that is not as it must be.
pub(crate) async fn run() -> Result<()> {
    let mut steps = Steps::new();
    let quiet = |_: &()| String::new();
    let trio = Trio::new();
    let trio = steps.step("three operators on the real Tangle core", trio, |_| String::new()).await?;
    println!(
        "\n{:>3}  {:<16} {:<9} {:<8} {:>10} {:>11} {:>9}",
        "job", "", "operator", "outcome", "call gas", "receipt gas", "time"
    );
    let mut answered = BTreeSet::new();
    trio.every_job(|row| {
        answered.insert(row.job);
        show(row);
    })
    .await?;
    println!();
    ensure!(Job::ALL.iter().all(|job| answered.contains(job)), "not every job was asked for: {answered:?}");
    let count = |ids: &Vec<_>| format!("{} of them: UnknownJob, each in a block too", ids.len());
    let reserved = steps.step("the reserved ids are refused", trio.reserved_ids(), count).await?;
    let expected = usize::from(Job::TABLE_LENGTH) - Job::ALL.len();
    ensure!(reserved.len() == expected, "{} ids are refused", reserved.len());
    for some in reserved.chunks(9) {
        println!("       {}", some.iter().map(|refused| refused.id.to_string()).collect::<Vec<_>>().join(", "));
    }
    let run_dirs = steps.step("the operators end when told to", trio.stop(), |_| String::new()).await?;
    let left = async { run_dirs.iter().try_for_each(|dir| nothing_left(dir)) };
    steps.step("nothing is left", left, quiet).await?;
    println!("\n  {} jobs and {expected} refusals in {:.1} s", answered.len(), steps.total_s());
    Ok(())
}

fn show(row: &Row) {
    let number = STAKED.iter().position(|key| Ground::address(*key) == row.operator);
    let operator = number.map_or_else(|| row.operator.to_string(), |index| format!("no. {}", index + 1));
    let outcome = format!("{:?}", row.outcome).to_lowercase();
    let (call_gas, receipt_gas, time_s) = (row.call_gas, row.receipt_gas, row.time.as_secs_f64());
    let name = row.job.name();
    println!(
        "{:>3}  {name:<16} {operator:<9} {outcome:<8} {call_gas:>10} {receipt_gas:>11} {time_s:>7.2} s",
        row.job.id()
    );
}
