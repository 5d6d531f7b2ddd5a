//! The sandbox image in its two variants: what one finds in it, and that its bill of materials tells all of it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use sandbox_tests::engine::{FULL_IMAGE, IMAGE, docker, docker_text};
use serde_json::Value;

use crate::world::{World, shown};

const BILL: &str = "/usr/share/agent-sandbox/sbom.json";
const SIDECAR: &str = "/usr/local/bin/sandbox-sidecar";

impl World {
    /// A sandbox of the full image, without any network, and nothing but its own folders to write to.
    async fn full() -> Result<(Self, String)> {
        let world = Self::with(|node| node.set("SANDBOX_IMAGE", FULL_IMAGE)).await?;
        let sandbox = world.create().await?;
        Ok((world, sandbox))
    }

    async fn check(&self, sandbox: &str, cases: &[(&str, &str)]) -> Result<()> {
        for (script, expected) in cases {
            let (code, stdout, stderr) = shown(&self.customer.exec(sandbox, script).await?);
            assert_eq!((code, stdout.as_str()), (Some(0), *expected), "{script}: {stderr}");
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_node_and_elixir_run_in_the_full_image() -> Result<()> {
    let (world, sandbox) = World::full().await?;
    let cases = [
        ("python3 -c 'import sqlite3, ssl; print(\"grüße\".upper())'", "GRÜSSE\n"),
        ("python3 -m venv v && v/bin/pip --version | cut -d ' ' -f 1 && v/bin/python -c 'print(6 * 7)'", "pip\n42\n"),
        ("pip --version | cut -d ' ' -f 1", "pip\n"),
        ("python3-config --includes | grep -o python3.11 | head -n 1", "python3.11\n"),
        ("node -e 'console.log([1, 2].map(n => n * 21).join())'", "21,42\n"),
        ("npm --version && npx --version", "10.9.9\n10.9.9\n"),
        ("mkdir p && cd p && npm init --yes > /dev/null && npm pkg get name", "\"p\"\n"),
        (
            "npm install --offline --global ./p > /dev/null && npm ls --global --parseable",
            "/home/agent/.local/lib\n/home/agent/.local/lib/node_modules/p\n",
        ),
        ("elixir -e 'IO.puts(String.upcase(\"grüße\"))'", "GRÜSSE\n"),
        ("mix new app > /dev/null && cd app && mix test 2>&1 | grep failures", "1 doctest, 1 test, 0 failures\n"),
    ];
    world.check(&sandbox, &cases).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_written_built_searched_packed_and_committed_in_the_full_image() -> Result<()> {
    let (world, sandbox) = World::full().await?;
    let cases = [
        ("id -un; echo $HOME; locale charmap; printf 'ü' | wc --chars", "agent\n/home/agent\nUTF-8\n1\n"),
        (
            "grep -E '^(agent|runner):' /etc/passwd | cut -d : -f 1,3,4; find / -xdev -uid 1001 2> /dev/null; true",
            "agent:1000:1000\nrunner:1001:1001\n",
        ),
        ("touch ~/f /tmp/f f && ! touch /etc/f 2> /dev/null && echo only there", "only there\n"),
        (
            "printf '#include <stdio.h>\\nint main() { puts(\"built\"); }\\n' > a.c && make a 2>&1 && ./a",
            "cc     a.c   -o a\nbuilt\n",
        ),
        (
            "printf '#include <iostream>\\nint main() { std::cout << \"built\\\\n\"; }\\n' > b.cc && g++ b.cc -o b && ./b",
            "built\n",
        ),
        ("pkg-config --exists zlib && echo found", "found\n"),
        ("rg --files-with-matches iostream .", "./b.cc\n"),
        ("echo '{\"a\": [1, 2]}' | jq --compact-output .a", "[1,2]\n"),
        (
            "git init --quiet r && cd r && cp ../a.c . && git add . && git -c user.name=a -c user.email=a@b commit --quiet --message first && git log --format=%s",
            "first\n",
        ),
        (
            "zip --quiet a.zip a.c && mkdir z && unzip -q a.zip -d z && cmp a.c z/a.c && zstd --quiet a.c && zstd --quiet --decompress --stdout a.c.zst | cmp - a.c && tar --create --xz --file a.tar.xz a.c && file --brief a.tar.xz",
            "XZ compressed data, checksum CRC64\n",
        ),
        (
            "curl --silent file:///workspace/a.c | cmp - a.c && test -s /etc/ssl/certs/ca-certificates.crt && echo equal",
            "equal\n",
        ),
        ("ps -o user= -p $$; echo long | less --quit-if-one-screen", "agent\nlong\n"),
        ("ls -l /proc/self/fd > /dev/null; command -v ssh || echo none", "none\n"),
    ];
    world.check(&sandbox, &cases).await
}

/// Runs a program of an image, alone.
fn inside(image: &str, program: &str, args: &[&str]) -> Result<String> {
    docker_text(&[&["run", "--rm", "--network", "none", "--entrypoint", program, image], args].concat())
}

fn texts<'a>(components: &'a [Value], kind: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let of_kind = components.iter().filter(move |one| one["purl"].as_str().is_some_and(|purl| purl.starts_with(kind)));
    of_kind.filter_map(|one| Some((one["name"].as_str()?, one["version"].as_str()?)))
}

fn check_bill(image: &str) -> Result<()> {
    let bill: Value = serde_json::from_str(&inside(image, "cat", &[BILL])?).context("the bill is no JSON")?;
    let components = bill["components"].as_array().context("no components")?;

    let format = "${Package} ${Version}\\n";
    let installed = inside(image, "dpkg-query", &["--show", "--showformat", format])?;
    let installed: BTreeSet<_> = installed.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(texts(components, "pkg:deb/").collect::<BTreeSet<_>>(), installed);
    assert!(installed.len() > 50, "{installed:?}");

    let crates: BTreeSet<_> = texts(components, "pkg:cargo/").map(|(name, _)| name).collect();
    assert!(crates.contains("axum") && crates.contains("tokio"), "{crates:?}");

    let sum = inside(image, "sha256sum", &[SIDECAR])?;
    let sum = sum.split(' ').next().context("no sum")?;
    let label = "{{index .Config.Labels \"network.tangle.sandbox.sidecar.sha256\"}}";
    assert_eq!(docker_text(&["image", "inspect", "--format", label, image])?, sum);
    let sidecar = components.iter().find(|one| one["name"] == "sandbox-sidecar").context("no sidecar")?;
    assert_eq!(sidecar["hashes"][0]["content"], sum);
    Ok(())
}

#[test]
fn the_slim_image_is_what_its_label_and_its_bill_of_materials_say() -> Result<()> {
    check_bill(IMAGE)
}

#[test]
fn the_full_image_is_what_its_label_and_its_bill_of_materials_say() -> Result<()> {
    check_bill(FULL_IMAGE)?;
    let npm = inside(FULL_IMAGE, "npm", &["--version"])?;
    let bill: Value = serde_json::from_str(&inside(FULL_IMAGE, "cat", &[BILL])?)?;
    let components = bill["components"].as_array().context("no components")?;
    let opencode = inside(FULL_IMAGE, "opencode", &["--version"])?;
    let expected = [("npm", npm.as_str()), ("opencode-ai", opencode.as_str())];
    assert_eq!(texts(components, "pkg:npm/").collect::<Vec<_>>(), expected);
    Ok(())
}

/// An image that goes when the test does.
struct Own(String);

impl Drop for Own {
    fn drop(&mut self) {
        if let Err(error) = docker(&["rmi", "--force", &self.0]) {
            eprintln!("clean-up: {error:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_ones_own_runs_where_the_operator_allows_it() -> Result<()> {
    let own = Own(format!("agent-sandbox-own:{}", std::process::id()));
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker");
    let (file, folder) = (recipe.join("own.Dockerfile").display().to_string(), recipe.display().to_string());
    docker_text(&["build", "--network", "none", "--file", &file, "--tag", &own.0, &folder])?;
    let by_digest = docker_text(&["image", "inspect", "--format", "{{.Id}}", &own.0])?;
    for name in [&own.0, &by_digest] {
        let world = World::with(|node| node.set("SANDBOX_IMAGES_ALLOWED", name)).await?;
        let sandbox = world.customer.create(world.service, &["--image", name]).await?;
        world.check(&sandbox, &[("hello; id -un; touch ~/f f", "hello from an image of my own\nagent\n")]).await?;
    }
    Ok(())
}

#[test]
fn the_full_image_is_at_most_1200_megabytes_and_the_slim_one_150() -> Result<()> {
    for (image, megabytes_max) in [(FULL_IMAGE, 1200), (IMAGE, 150)] {
        let size: u64 = docker_text(&["image", "inspect", "--format", "{{.Size}}", image])?.parse()?;
        assert!(size <= megabytes_max * 1_000_000, "{image} has {size} bytes");
    }
    Ok(())
}
