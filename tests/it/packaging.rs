//! The operator as it is shipped: its image by Compose, its program by the systemd unit. Each serves a customer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sandbox_sdk::devchain;
use sandbox_tests::engine::{self, docker, docker_text};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::free_port;
use sandbox_tests::programs::program;
use sandbox_tests::wait::until;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::world::shown;

/// Time for an image to be built or Compose to start or stop something.
const COMMAND_MAX: Duration = Duration::from_secs(180);
/// Time for an operator to register and be ready, beyond the pause of its health check.
const READY_MAX: Duration = Duration::from_secs(120);
const BASE: &str = "agent-sandbox-base:bookworm";

/// The directory `docker` of the checkout.
fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker").join(file)
}

/// Runs a program to its end, which must be good.
async fn run(command: &mut Command, input: &str) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input.as_bytes()).await.with_context(|| format!("{command:?} reads nothing"))?;
    drop(stdin);
    let ended = tokio::time::timeout(COMMAND_MAX, child.wait_with_output()).await;
    let output: Output = ended.with_context(|| format!("{command:?} does not end"))??;
    let (code, stdout, stderr) = shown(&output);
    ensure!(code == Some(0), "{command:?} ended with {code:?}: {stdout}{stderr}");
    Ok(stdout)
}

/// The example of the settings, filled in for this ground as an operator would.
fn settings(ground: &Ground, api: &str) -> Result<String> {
    let mut text = std::fs::read_to_string(packaging("operator.env.example"))?;
    let mut ws_url = ground.deployment.rpc_url.clone();
    ensure!(ws_url.set_scheme("ws").is_ok(), "{ws_url} has no web socket twin");
    for (name, value) in [
        ("TANGLE_CONTRACT", ground.deployment.core.to_string()),
        ("BLUEPRINT_ID", ground.deployment.blueprint_id.to_string()),
        ("HTTP_RPC_URL", ground.deployment.rpc_url.to_string()),
        ("WS_RPC_URL", ws_url.to_string()),
        ("API_LISTEN", api.to_owned()),
        ("SSH_BIND", free_port()?.to_string()),
        // What waits for the next create is not what a customer left behind.
        ("POOL_SIZE", "0".to_owned()),
    ] {
        let found = text.lines().find(|line| line.trim_start_matches('#').starts_with(&format!("{name}=")));
        let line = found.with_context(|| format!("the example does not name {name}"))?.to_owned();
        text = text.replacen(&line, &format!("{name}={value}"), 1);
    }
    Ok(text)
}

async fn ready(api: &str) -> Result<()> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(2)).build()?;
    let url = format!("http://{api}/ready");
    let look = || async { client.get(&url).send().await.ok()?.status().is_success().then_some(()) };
    until("the operator to be ready", READY_MAX, look).await
}

/// What a customer does with an operator that is well.
async fn serves(ground: &Ground, run_dir: &Path) -> Result<()> {
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR)]).await?;
    let sandbox = customer.create(service, &[]).await?;
    let output = customer.exec(&sandbox, "echo served").await?;
    assert_eq!(shown(&output), (Some(0), "served\n".into(), String::new()));
    assert_eq!(customer.text(&["ssh", &sandbox, "--", "echo served"]).await?, "served");
    customer.text(&["rm", "--within", "60", &sandbox]).await?;
    assert_eq!(engine::containers(run_dir)?, Vec::<String>::new());
    assert_eq!(std::fs::read_dir(run_dir)?.count(), 0, "no socket is left");
    Ok(())
}

/// A project of Compose's with our file; it takes along what it made.
struct Project {
    name: String,
    image: String,
    dir: TempDir,
}

impl Project {
    /// Builds the image from the built operator, for a project of this ground.
    async fn new(ground: &Ground, api: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("sbx").tempdir()?;
        let name = dir.path().file_name().context("no name")?.to_string_lossy().to_lowercase().replace('.', "");
        let context = dir.path().join("image");
        std::fs::create_dir(&context)?;
        std::fs::copy(program("operator")?, context.join("operator"))?;
        std::fs::write(dir.path().join("operator.env"), settings(ground, api)?)?;
        let project = Self { image: format!("agent-sandbox-operator:{name}"), name, dir };
        let mut build = Command::new("docker");
        build.args(["build", "--network", "host", "--build-arg", &format!("BASE={BASE}"), "--tag", &project.image]);
        build.arg("--file").arg(packaging("operator.Dockerfile")).arg(&context);
        run(&mut build, "").await?;
        Ok(project)
    }

    fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Compose, with our file and this project's places.
    fn compose(&self, args: &[&str]) -> Result<std::process::Command> {
        let plugin = docker(&["compose", "version"])?.status.success();
        let mut command = std::process::Command::new(if plugin { "docker" } else { "docker-compose" });
        command.args(plugin.then_some("compose")).arg("--file").arg(packaging("compose.yaml"));
        command.args(["--project-name", &self.name]).args(args);
        command.env("OPERATOR_IMAGE", &self.image);
        command.env("OPERATOR_ENV_FILE", self.dir.path().join("operator.env"));
        command.env("OPERATOR_RUN_DIR", self.run_dir()).env("OPERATOR_DATA_DIR", self.dir.path().join("data"));
        Ok(command)
    }

    async fn tell(&self, args: &[&str], input: &str) -> Result<String> {
        run(&mut Command::from(self.compose(args)?), input)
            .await
            .context("is Compose installed? `cargo xtask setup --full`")
    }

    /// What the engine says of the operator's container.
    fn field(&self, format: &str) -> Result<String> {
        let label = format!("label=com.docker.compose.project={}", self.name);
        let found = docker_text(&["ps", "--all", "--quiet", "--filter", &label])?;
        let container = found.lines().next().context("no container of the operator's")?;
        docker_text(&["inspect", "--format", format, container])
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let down = self.compose(&["down", "--timeout", "5"]).and_then(|mut down| Ok(down.output()?));
        let image = docker(&["rmi", "--force", &self.image]);
        for ended in [down.map(|_| ()), image.map(|_| ()), engine::clear(&self.run_dir())] {
            if let Err(error) = ended {
                eprintln!("clean-up: {error:#}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_image_serves_as_compose_starts_it() -> Result<()> {
    let ground = Ground::new().await?;
    let api = free_port()?.to_string();
    let project = Project::new(&ground, &api).await?;
    let version = docker_text(&["run", "--rm", "--network", "none", &project.image, "--version"]);
    version
        .context("the operator was built against another C library than the image has: build it on Debian bookworm")?;
    project.tell(&["run", "--rm", "-T", "operator", "key", "import"], &devchain::KEYS[OPERATOR].to_string()).await?;
    project.tell(&["up", "--detach"], "").await?;
    if let Err(error) = ready(&api).await {
        bail!("{error:#}:\n{}", project.tell(&["logs"], "").await?);
    }
    serves(&ground, &project.run_dir()).await?;

    let healthy = || async { (project.field("{{.State.Health.Status}}").ok()? == "healthy").then_some(()) };
    until("the health check to pass", READY_MAX, healthy).await?;
    assert_eq!(project.field("{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.Privileged}}")?, "unless-stopped false");
    project.tell(&["stop"], "").await?;
    assert_eq!(project.field("{{.State.ExitCode}} {{.State.OOMKilled}}")?, "0 false", "it ends well when told to");
    Ok(())
}

/// The unit as this machine would start it, with systemd's own words resolved to `dir`.
struct Unit {
    text: String,
    dir: TempDir,
}

impl Unit {
    fn new() -> Result<Self> {
        let text = std::fs::read_to_string(packaging("agent-sandbox-operator.service"))?;
        let dir = tempfile::Builder::new().prefix("sbx").tempdir()?;
        let operator = program("operator")?.display().to_string();
        let etc = dir.path().join("operator.env").display().to_string();
        let text = text.replace("/etc/agent-sandbox/operator.env", &etc).replace("/usr/local/bin/operator", &operator);
        Ok(Self { text, dir })
    }

    fn at(&self, word: &str) -> String {
        let place = |name: &str| self.dir.path().join(name).display().to_string();
        word.replace("%S", &place("state")).replace("%t", &place("run"))
    }

    /// The values of `name`, in order.
    fn values(&self, name: &str) -> Vec<String> {
        let begin = format!("{name}=");
        self.text.lines().filter_map(|line| line.strip_prefix(&begin)).map(|value| self.at(value)).collect()
    }

    /// Makes the folders that systemd would make before a start.
    fn make_folders(&self) -> Result<()> {
        for (setting, above) in [("StateDirectory", "%S"), ("RuntimeDirectory", "%t")] {
            for name in self.values(setting) {
                std::fs::create_dir_all(Path::new(&self.at(above)).join(name))?;
            }
        }
        Ok(())
    }

    /// `Environment` and then `EnvironmentFile`, which wins.
    fn environment(&self) -> Result<HashMap<String, String>> {
        let mut lines = self.values("Environment");
        for file in self.values("EnvironmentFile") {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            lines.extend(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned));
        }
        Ok(lines.iter().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    /// `ExecStart` in the unit's environment, with its capabilities and never any new privilege.
    fn start(&self) -> Result<Child> {
        let line = self.values("ExecStart").pop().context("the unit starts nothing")?;
        let kept = self.values("CapabilityBoundingSet").pop().context("the unit keeps every capability")?;
        let kept = kept.to_lowercase().replace("cap_", "+").replace(' ', ",");
        let log = std::fs::File::create(self.dir.path().join("log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", "--inh-caps=-all", &format!("--bounding-set=-all,{kept}"), "--"]);
        command.args(line.split(' ')).env_clear().envs(self.environment()?).env("PATH", "/usr/bin:/usr/sbin");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        command.spawn().context("cannot start the unit's line by setpriv")
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        if let Err(error) = engine::clear(&self.dir.path().join("run/agent-sandbox")) {
            eprintln!("clean-up: {error:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unit_is_one_that_systemd_takes_without_a_warning() -> Result<()> {
    let unit = Unit::new()?;
    let file = unit.dir.path().join("agent-sandbox-operator.service");
    std::fs::write(&file, &unit.text)?;
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&file).stderr(Stdio::piped());
    let ended = tokio::time::timeout(COMMAND_MAX, verify.kill_on_drop(true).output()).await;
    let output =
        ended.context("systemd-analyze does not end")?.context("systemd-analyze, of Debian's package systemd")?;
    assert_eq!(shown(&output), (Some(0), String::new(), String::new()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_units_line_serves_in_the_units_environment_and_folders() -> Result<()> {
    let ground = Ground::new().await?;
    let api = free_port()?.to_string();
    let unit = Unit::new()?;
    std::fs::write(unit.dir.path().join("operator.env"), settings(&ground, &api)?)?;
    unit.make_folders()?;
    let mut import = Command::new(program("operator")?);
    import.args(["key", "import"]).env_clear().envs(unit.environment()?);
    run(&mut import, &devchain::KEYS[OPERATOR].to_string()).await?;

    let mut child = unit.start()?;
    if let Err(error) = ready(&api).await {
        bail!("{error:#}:\n{}", std::fs::read_to_string(unit.dir.path().join("log"))?);
    }
    serves(&ground, &unit.dir.path().join("run/agent-sandbox")).await?;
    let pid = child.id().context("the operator has ended")?.to_string();
    run(Command::new("kill").args(["-TERM", &pid]), "").await?;
    let bound: u64 = unit.values("TimeoutStopSec").pop().context("no bound of its end")?.parse()?;
    let ended = tokio::time::timeout(Duration::from_secs(bound), child.wait()).await;
    assert_eq!(ended.context("it does not end in the time that the unit gives it")??.code(), Some(0));
    println!(
        "not exercised here, because no service manager starts it: restarts, system call and address family filters"
    );
    Ok(())
}
