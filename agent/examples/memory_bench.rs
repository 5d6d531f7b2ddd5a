//! Measures memory: how long a context takes to build, and which share of what was said long ago stands in it. Prints a line
//! of samples for each figure, as `cargo xtask bench memory` reads them.
//!
//! Everything said is made by a generator without chance, so that a figure changes only with the code.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use sandbox_agent::limits::CONTEXT_TOKENS_DEFAULT;
use sandbox_agent::memory::{Memory, O200k, Settings, Tokenizer};
use sandbox_agent::model::{Answer, Ask, Embedder, Heard, Message, Model, ModelError, Role};
use serde_json::json;
use tempfile::TempDir;

/// Messages of the session whose contexts are timed.
const MESSAGES: usize = 2_000;
/// Contexts that are timed.
const BUILDS: usize = 200;
/// Questions and answers of the session in which facts are planted.
const TURNS: usize = 200;
/// Facts, one in each of so many turns from the first.
const FACTS: usize = 40;
const TURNS_PER_FACT: usize = 4;
/// Numbers of a vector, as the usual embedding models have them.
const NUMBERS: usize = 1_536;

/// Names of what facts are about, in each text that tells none: a name alone finds nothing.
const MENTIONS: usize = 4;
const NAMES: [&str; 20] = [
    "Falcon", "Heron", "Lynx", "Otter", "Badger", "Raven", "Cobra", "Marten", "Osprey", "Puma", "Gecko", "Bison",
    "Tapir", "Ibex", "Stork", "Viper", "Moose", "Hyena", "Koala", "Dingo",
];
const WORDS: [&str; 24] = [
    "the",
    "pipeline",
    "runs",
    "tests",
    "before",
    "it",
    "writes",
    "a",
    "report",
    "and",
    "service",
    "reads",
    "configuration",
    "when",
    "cluster",
    "starts",
    "logs",
    "show",
    "request",
    "latency",
    "under",
    "load",
    "of",
    "customers",
];
/// Words that mean the same, as a real embedder would know.
const SYNONYMS: [(&str, &str); 6] = [
    ("number", "code"),
    ("opens", "access"),
    ("depot", "warehouse"),
    ("person", "owner"),
    ("responsible", "owner"),
    ("project", "repository"),
];

/// Something that is told once and asked for later.
struct Fact {
    told: String,
    /// What must stand in the context.
    value: String,
    asked: String,
    /// The same question, with the name alone in common.
    paraphrased: String,
}

fn facts() -> Vec<Fact> {
    let fact = |number: usize| {
        let (name, value) = (NAMES[number % NAMES.len()], format!("{}", 70_001 + number * 7));
        let [told, asked, paraphrased] = if number < NAMES.len() {
            [
                format!("Remember that the access code of the {name} warehouse is {value}."),
                format!("What is the access code of the {name} warehouse?"),
                format!("Which number opens our {name} depot?"),
            ]
        } else {
            [
                format!("By the way, the owner of the {name} repository is employee {value}."),
                format!("Who is the owner of the {name} repository?"),
                format!("Which person is responsible for project {name}?"),
            ]
        };
        Fact { told, value, asked, paraphrased }
    };
    (0..FACTS).map(fact).collect()
}

/// Prose of so many words that says nothing, and names what the facts are about.
fn prose(number: usize, words: usize) -> String {
    let word = |at: usize| WORDS[(number * 31 + at * 17 + at * at * 7) % WORDS.len()];
    let mut words: Vec<&str> = (0..words).map(word).collect();
    for mention in 0..MENTIONS {
        words.insert((number + mention * 5) % words.len(), NAMES[(number * 3 + mention * 7) % NAMES.len()]);
    }
    format!("{}.", words.join(" "))
}

/// A model whose summaries tell no fact: what is found is found by retrieval.
struct Mute;

#[async_trait]
impl Model for Mute {
    async fn answer(&self, _: &Ask, _: &mut (dyn for<'h> FnMut(Heard<'h>) + Send)) -> Result<Answer, ModelError> {
        Ok(Answer { text: prose(1, 1_200), ..Answer::default() })
    }
}

/// Stands in for a provider's embedder: it counts words and knows some synonyms.
struct Concepts;

#[async_trait]
impl Embedder for Concepts {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        Ok(texts.iter().map(|text| concepts(text)).collect())
    }
}

fn concepts(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; NUMBERS];
    let text = text.to_lowercase();
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.len() > 3) {
        let concept = SYNONYMS.iter().find(|(other, _)| *other == word).map_or(word, |(_, concept)| concept);
        let hash = concept.bytes().fold(5_381_usize, |hash, byte| hash.wrapping_mul(33) ^ usize::from(byte));
        vector[hash % NUMBERS] += 1.0;
    }
    vector
}

fn main() -> Result<()> {
    tokenizer()?;
    tokio::runtime::Runtime::new().context("no runtime")?.block_on(async {
        build("median_ms", None).await?;
        build("vectors_median_ms", Some(Arc::new(Concepts))).await?;
        recall("bm25", None).await?;
        recall("vectors", Some(Arc::new(Concepts))).await
    })
}

fn print(figure: &str, unit: &str, ours: &[f64], baseline: &[f64]) {
    println!("{}", json!({ "figure": figure, "unit": unit, "ours": ours, "baseline": baseline }));
}

/// What the first count costs.
fn tokenizer() -> Result<()> {
    let (before, start) = (resident_mib()?, Instant::now());
    ensure!(O200k.count("hello world") == 2, "the tokenizer counts wrong");
    print("tokenizer_load_ms", "ms", &[start.elapsed().as_secs_f64() * 1_000.0], &[]);
    print("tokenizer_rss_mib", "MiB", &[resident_mib()? - before], &[]);
    Ok(())
}

fn resident_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("no status of this process")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident size")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("resident size")?;
    Ok(kib / 1_024.0)
}

fn open(directory: &TempDir, embedder: Option<Arc<dyn Embedder>>) -> Result<Memory> {
    Ok(Memory::open(Settings {
        directory: directory.path().into(),
        session: "bench".into(),
        tokenizer: Arc::new(O200k),
        model: Arc::new(Mute),
        embedder,
        budget_tokens: CONTEXT_TOKENS_DEFAULT,
    })?)
}

fn speaker(number: usize) -> Role {
    if number.is_multiple_of(2) { Role::User } else { Role::Assistant }
}

/// Times contexts of a long session.
async fn build(figure: &str, embedder: Option<Arc<dyn Embedder>>) -> Result<()> {
    let directory = tempfile::tempdir().context("no directory")?;
    let memory = open(&directory, embedder)?;
    let messages = (0..MESSAGES).map(|number| Message::new(speaker(number), prose(number, 20 + number * 13 % 160)));
    memory.append(messages.collect()).await?;
    memory.settle().await;
    let mut samples = Vec::new();
    for number in 0..BUILDS {
        let question = prose(number * 5 + 3, 12);
        let start = Instant::now();
        let context = memory.build(&question).await?;
        samples.push(start.elapsed().as_secs_f64() * 1_000.0);
        ensure!(context.metadata.has_summary && context.metadata.semantic_count > 0, "a tier is empty");
        ensure!(context.total_tokens <= CONTEXT_TOKENS_DEFAULT, "the context is too long");
    }
    print(figure, "ms", &samples, &[]);
    Ok(())
}

/// The share of planted facts that stand in a context for the question about them; beside it, without finding again.
async fn recall(manner: &str, embedder: Option<Arc<dyn Embedder>>) -> Result<()> {
    let directory = tempfile::tempdir().context("no directory")?;
    let memory = open(&directory, embedder)?;
    let facts = facts();
    for turn in 0..TURNS {
        let fact = facts.get(turn / TURNS_PER_FACT).filter(|_| turn.is_multiple_of(TURNS_PER_FACT));
        let told = fact.map_or_else(|| prose(turn, 20), |fact| format!("{} {}", prose(turn, 20), fact.told));
        let answer = Message::new(Role::Assistant, prose(turn + 1, 60 + turn % 90));
        memory.append(vec![Message::new(Role::User, told), answer]).await?;
    }
    memory.settle().await;
    let recent = share(&memory, &facts, |_| "").await?;
    let asked = share(&memory, &facts, |fact| &fact.asked).await?;
    let paraphrased = share(&memory, &facts, |fact| &fact.paraphrased).await?;
    print(&format!("recall_{manner}"), "share", &[asked], &[recent]);
    print(&format!("recall_{manner}_paraphrased"), "share", &[paraphrased], &[recent]);
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
async fn share(memory: &Memory, facts: &[Fact], question: impl Fn(&Fact) -> &str) -> Result<f64> {
    let mut found = 0;
    for fact in facts {
        let messages = memory.build(question(fact)).await?.messages("");
        found += usize::from(messages.iter().any(|message| message.content.contains(&fact.value)));
    }
    Ok(found as f64 / facts.len() as f64)
}
