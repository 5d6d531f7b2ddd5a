//! `ssh_connect`, `ssh_bulk`, `sftp`, `ssh_sessions`: OpenSSH's client through the gateway into a sandbox, against an
//! OpenSSH server beside it.

mod place;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::place::{Place, Target};
use super::footprint::rss_mib;
use super::{Samples, median, report, report_times};

const CONNECT_ROUNDS: usize = 40;
const BULK_ROUNDS: usize = 3;
const BULK_MIB: u64 = 512;
const CIPHERS: [(&str, &str); 2] =
    [("aes_gcm", "aes128-gcm@openssh.com"), ("chacha20", "chacha20-poly1305@openssh.com")];
const SFTP_ROUNDS: usize = 3;
const LARGE_MIB: u64 = 128;
const SMALL_FILES: usize = 5_000;
const SMALL_BYTES: usize = 1_024;
/// Sessions at the beginning and the end of the slope.
const SESSIONS: (usize, usize) = (50, 200);

/// Connect, prove a key, run `true`, leave.
pub(super) async fn connect() -> Result<()> {
    let place = Place::start().await?;
    let mut samples = Samples::default();
    for _ in 0..CONNECT_ROUNDS {
        samples.ours.push(timed_ms(place.ours.program("ssh", &[]).arg("true"))?);
        samples.baseline.push(timed_ms(place.baseline.program("ssh", &[]).arg("true"))?);
    }
    report_times("ssh_connect", &samples)
}

fn timed_ms(command: &mut Command) -> Result<f64> {
    let started = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("a client")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(started.elapsed().as_secs_f64() * 1_000.0)
}

/// Bytes from and to a program, with either cipher.
pub(super) async fn bulk() -> Result<()> {
    let place = Place::start().await?;
    for (name, cipher) in CIPHERS {
        let (mut down, mut up) = (Samples::default(), Samples::default());
        let (mut cpu, started) = (Samples::default(), (place.cpu_ours_s()?, place.cpu_baseline_s()?));
        for _ in 0..BULK_ROUNDS {
            down.ours.push(download_mib_per_s(&place.ours, cipher)?);
            down.baseline.push(download_mib_per_s(&place.baseline, cipher)?);
            up.ours.push(upload_mib_per_s(&place.ours, cipher)?);
            up.baseline.push(upload_mib_per_s(&place.baseline, cipher)?);
        }
        #[allow(clippy::cast_precision_loss)]
        let gib = (2 * BULK_ROUNDS as u64 * BULK_MIB) as f64 / 1_024.0;
        cpu.ours.push((place.cpu_ours_s()? - started.0) / gib);
        cpu.baseline.push((place.cpu_baseline_s()? - started.1) / gib);
        for (direction, samples) in [("down", &down), ("up", &up)] {
            let figures = (median(&samples.ours), Some(median(&samples.baseline)));
            report("ssh_bulk", &format!("{direction}_{name}_mib_per_s"), "MiB/s", samples, figures)?;
        }
        report(
            "ssh_bulk",
            &format!("{name}_cpu_s_per_gib"),
            "s",
            &cpu,
            (median(&cpu.ours), Some(median(&cpu.baseline))),
        )?;
    }
    Ok(())
}

fn download_mib_per_s(target: &Target, cipher: &str) -> Result<f64> {
    let started = Instant::now();
    let mut child = target
        .program("ssh", &["-c", cipher])
        .arg(format!("head -c {BULK_MIB}M /dev/zero"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("a client")?;
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    let mut stdout = child.stdout.take().context("stdout")?;
    loop {
        match stdout.read(&mut buffer).context("what came")? {
            0 => break,
            read => bytes += read as u64,
        }
    }
    ensure!(child.wait()?.success() && bytes == BULK_MIB << 20, "{bytes} bytes came");
    Ok(mib_per_s(BULK_MIB, started))
}

fn upload_mib_per_s(target: &Target, cipher: &str) -> Result<f64> {
    let started = Instant::now();
    let mut child = target
        .program("ssh", &["-c", cipher])
        .arg("wc -c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a client")?;
    let mut stdin = child.stdin.take().context("stdin")?;
    let piece = vec![0; 1 << 20];
    for _ in 0..BULK_MIB {
        stdin.write_all(&piece).context("what goes")?;
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(told == (BULK_MIB << 20).to_string(), "{told} bytes arrived");
    Ok(mib_per_s(BULK_MIB, started))
}

#[allow(clippy::cast_precision_loss)]
fn mib_per_s(mib: u64, since: Instant) -> f64 {
    mib as f64 / since.elapsed().as_secs_f64()
}

/// One large file and many small ones, both ways.
pub(super) async fn sftp() -> Result<()> {
    let place = Place::start().await?;
    let here = place.directory.path().join("here");
    let small = here.join("small");
    fs::create_dir_all(&small)?;
    File::create(here.join("large"))?.write_all(&vec![7; (LARGE_MIB << 20) as usize])?;
    for number in 0..SMALL_FILES {
        fs::write(small.join(number.to_string()), [b's'; SMALL_BYTES])?;
    }
    let mut samples: [Samples; 4] = Default::default();
    let started = (place.cpu_ours_s()?, place.cpu_baseline_s()?);
    for _ in 0..SFTP_ROUNDS {
        for (index, steps) in STEPS.iter().enumerate() {
            samples[index].ours.push(steps.per_s(&place.ours, &here)?);
            samples[index].baseline.push(steps.per_s(&place.baseline, &here)?);
        }
    }
    for (steps, samples) in STEPS.iter().zip(&samples) {
        report("sftp", steps.figure, steps.unit, samples, (median(&samples.ours), Some(median(&samples.baseline))))?;
    }
    let cpu =
        Samples { ours: vec![place.cpu_ours_s()? - started.0], baseline: vec![place.cpu_baseline_s()? - started.1] };
    report("sftp", "cpu_s", "s", &cpu, (median(&cpu.ours), Some(median(&cpu.baseline))))
}

/// What an SFTP client is told to do, and how much that is.
struct Steps {
    figure: &'static str,
    unit: &'static str,
    amount: f64,
    /// With `{there}` and `{here}`.
    batch: &'static str,
}

#[allow(clippy::cast_precision_loss)]
const STEPS: [Steps; 4] = [
    Steps { figure: "put_mib_per_s", unit: "MiB/s", amount: LARGE_MIB as f64, batch: "put {here}/large {there}/large" },
    Steps { figure: "get_mib_per_s", unit: "MiB/s", amount: LARGE_MIB as f64, batch: "get {there}/large {here}/got" },
    Steps {
        figure: "put_files_per_s",
        unit: "files/s",
        amount: SMALL_FILES as f64,
        batch: "put -r {here}/small {there}",
    },
    Steps {
        figure: "get_files_per_s",
        unit: "files/s",
        amount: SMALL_FILES as f64,
        batch: "get -r {there}/small {here}/back",
    },
];

impl Steps {
    fn per_s(&self, target: &Target, here: &Path) -> Result<f64> {
        let batch = self.batch.replace("{there}", &target.directory).replace("{here}", &here.display().to_string());
        let started = Instant::now();
        let mut child = target
            .program("sftp", &["-q", "-b", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("a client")?;
        child.stdin.take().context("stdin")?.write_all(batch.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let per_s = self.amount / started.elapsed().as_secs_f64();
        fs::remove_dir_all(here.join("back")).ok();
        Ok(per_s)
    }
}

/// What one more idle session costs operator and sidecar.
pub(super) async fn sessions() -> Result<()> {
    let place = Place::start().await?;
    let held = || Ok::<f64, anyhow::Error>(1_024.0 * (rss_mib(place.node.pid()?.into())? + rss_mib(place.sidecar)?));
    let mut idle = Vec::new();
    let mut at = [0.0; 2];
    for (index, count) in [SESSIONS.0, SESSIONS.1].into_iter().enumerate() {
        while idle.len() < count {
            idle.push(Idle::start(&place.ours)?);
        }
        at[index] = held()?;
    }
    #[allow(clippy::cast_precision_loss)]
    let slope = (at[1] - at[0]) / (SESSIONS.1 - SESSIONS.0) as f64;
    report(
        "ssh_sessions",
        "kib_per_session",
        "KiB",
        &Samples { ours: vec![slope], baseline: Vec::new() },
        (slope, None),
    )
}

/// A session whose program waits.
struct Idle(Child);

impl Idle {
    fn start(target: &Target) -> Result<Self> {
        let mut child = target
            .program("ssh", &[])
            .arg("echo here; cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a client")?;
        let mut said = [0; 5];
        child.stdout.as_mut().context("stdout")?.read_exact(&mut said).context("a session")?;
        Ok(Self(child))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if self.0.kill().and_then(|()| self.0.wait()).is_err() {
            eprintln!("a client is left");
        }
    }
}
