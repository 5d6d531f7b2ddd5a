//! The whole job table, at three operators.

use std::collections::BTreeSet;

use anyhow::Result;
use sandbox_protocol::Job;
use sandbox_tests::all_jobs::Trio;

#[tokio::test(flavor = "multi_thread")]
async fn every_one_of_the_17_jobs_is_answered_and_the_25_other_ids_are_refused() -> Result<()> {
    let trio = Trio::new().await?;
    let (mut jobs, mut operators) = (BTreeSet::new(), BTreeSet::new());
    trio.every_job(|row| {
        jobs.insert(row.job);
        operators.insert(row.operator);
    })
    .await?;
    assert_eq!((jobs.into_iter().collect::<Vec<_>>(), operators.len()), (Job::ALL.to_vec(), 3));
    let reserved: Vec<u8> = trio.reserved_ids().await?.iter().map(|refused| refused.id).collect();
    let others: Vec<u8> = (0..Job::TABLE_LENGTH).filter(|id| Job::from_id(*id).is_none()).collect();
    assert_eq!((reserved.len(), reserved), (25, others));
    trio.stop().await?;
    Ok(())
}
