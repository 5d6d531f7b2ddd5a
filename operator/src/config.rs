//! The operator's configuration, read once. A bad value ends the start with the name of the setting and the reason.
//!
//! The names of the Blueprint SDK (`HTTP_RPC_URL`, `KEYSTORE_URI`, `BLUEPRINT_ID`, …) are used where it has one, so that
//! the same environment starts the node alone and under the Blueprint Manager.

mod agents;
mod operations;
mod ssh;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use alloy::primitives::{Address, U256};
use alloy::transports::http::reqwest::Url;
use alloy::transports::http::reqwest::header::HeaderValue;
use ipnet::IpNet;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::request::{Images, Menu, Resources};
use sandbox_process::logging::Format;
use sandbox_process::source::{ConfigError, Source, optional, or_default, required, switch, words};
use sandbox_protocol::limits::{TOKEN_LIFE_S_DEFAULT, TOKEN_LIFE_S_MAX};

pub(crate) use agents::AgentsConfig;
use operations::read_workflows;
pub(crate) use operations::{HeartbeatConfig, KeystoreConfig, WorkflowsConfig, read_keystore};
pub(crate) use ssh::{SshConfig, read_overlap as read_ssh_overlap};

use crate::api::TlsFiles;
use crate::chain::policy::Policy;
use crate::docker::DiskQuota;
use crate::failpoint::Failpoint;
use crate::limits::{
    JOBS_CONCURRENT_DEFAULT, JOBS_CONCURRENT_MAX, POOL_SIZE_DEFAULT, POOL_SIZE_MAX, QUOTE_LIFE_S_DEFAULT,
    QUOTE_LIFE_S_MAX, QUOTE_LIFE_S_MIN, TOKEN_LIFE_S_MIN,
};
use crate::outside::OutsideConfig;

const WEI_PER_GWEI: u128 = 1_000_000_000;

/// Everything that can be set.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) chain: ChainConfig,
    pub(crate) keystore: KeystoreConfig,
    pub(crate) policy: Policy,
    pub(crate) heartbeat: HeartbeatConfig,
    /// Where operators stake; only looked at by `operator doctor`.
    pub(crate) staking: Option<Address>,
    /// State that must survive.
    pub(crate) data_dir: PathBuf,
    /// Sockets of running sandboxes.
    pub(crate) run_dir: PathBuf,
    pub(crate) api_listen: SocketAddr,
    pub(crate) api: ApiConfig,
    pub(crate) offer: OfferConfig,
    pub(crate) engine: EngineConfig,
    pub(crate) outside: OutsideConfig,
    /// What is offered for language-model work.
    pub(crate) agents: AgentsConfig,
    /// How workflows are fired.
    pub(crate) workflows: WorkflowsConfig,
    /// The SSH gateway, where there is one.
    pub(crate) ssh: Option<SshConfig>,
    /// Register, serve nothing: what the Blueprint Manager asks of a blueprint before there is a service.
    pub(crate) register_only: bool,
    /// The Blueprint Manager's socket; without it the node runs alone.
    pub(crate) bridge_socket: Option<PathBuf>,
    /// Where to die, for tests; no setting of an operator's.
    pub(crate) failpoint: Failpoint,
}

/// Which blueprint on which chain.
#[derive(Debug, Clone)]
pub(crate) struct ChainConfig {
    pub(crate) rpc_url: Url,
    /// Tells of new blocks at once, where set; otherwise they are looked for.
    pub(crate) ws_url: Option<Url>,
    /// Checked where set; otherwise the node's is taken.
    pub(crate) chain_id: Option<u64>,
    pub(crate) core: Address,
    pub(crate) blueprint: u64,
    pub(crate) service: Option<u64>,
    pub(crate) confirmations: Option<u64>,
    /// Oldest newest block, in seconds, on which an effect may begin; zero is without bound.
    pub(crate) head_age_s_max: Option<u64>,
    /// The most that is paid for a unit of gas, in wei.
    pub(crate) fee_max: Option<u128>,
    /// Jobs worked on at a time.
    pub(crate) jobs_concurrent: usize,
}

/// What the operator offers.
#[derive(Debug, Clone)]
pub(crate) struct OfferConfig {
    pub(crate) capacity: Capacity,
    /// Wei for one core-hour.
    pub(crate) price_per_hour: U256,
    /// The same in the smallest unit of tokens, for services that are paid in one.
    pub(crate) token_prices_per_hour: BTreeMap<Address, U256>,
    /// Seconds that a quote is good for.
    pub(crate) quote_life_s: u64,
    /// Where customers reach the API.
    pub(crate) api_url: String,
}

/// How the API is served.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApiConfig {
    /// Certificate and key; without them TLS is a proxy's matter.
    pub(crate) tls: Option<TlsFiles>,
    /// Proxies whose word on who asks is believed.
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// Origins whose pages may ask.
    pub(crate) cors_origins: Vec<HeaderValue>,
    /// Life of a token whose sign-in message names no end, in seconds.
    pub(crate) token_life_s: u64,
}

/// The container engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineConfig {
    pub(crate) host: String,
    /// Another runtime than the engine's default.
    pub(crate) runtime: Option<String>,
    /// How sandboxes are kept to their disk's size.
    pub(crate) disk_quota: DiskQuota,
    /// Containers that are started before they are asked for.
    pub(crate) pool_size: usize,
    pub(crate) menu: Menu,
    /// What sidecars are given besides, as `NAME=value`.
    pub(crate) settings: Vec<String>,
}

/// How the process logs.
#[derive(Debug, Clone)]
pub(crate) struct LogConfig {
    pub(crate) format: Format,
    pub(crate) filter: String,
}

impl Config {
    /// Reads everything.
    pub(crate) fn read(source: &impl Source) -> Result<Self, ConfigError> {
        check_protocol(source)?;
        let api_listen = or_default(source, "API_LISTEN", SocketAddr::from(([127, 0, 0, 1], 9944)))?;
        let offer = read_offer(source, api_listen)?;
        let ssh = ssh::read_ssh(source, &offer.api_url)?;
        let mut engine = read_engine(source)?;
        engine.menu.ssh = ssh.is_some();
        let agents = agents::read_agents(source)?;
        engine.menu.profiles.clone_from(&agents.profiles);
        engine.settings.clone_from(&agents.settings);
        Ok(Self {
            chain: read_chain(source)?,
            keystore: read_keystore(source)?,
            policy: operations::read_policy(source)?,
            heartbeat: operations::read_heartbeat(source)?,
            staking: optional::<Address>(source, "STAKING_CONTRACT")?.filter(|contract| !contract.is_zero()),
            data_dir: data_dir(source)?,
            run_dir: or_default(source, "RUN_DIR", PathBuf::from("/run/agent-sandbox"))?,
            api_listen,
            api: read_api(source)?,
            offer,
            engine,
            outside: OutsideConfig::read(source)?,
            agents,
            workflows: read_workflows(source)?,
            ssh,
            register_only: switch(source, "REGISTRATION_MODE_ON")?,
            bridge_socket: bridge_socket(source)?,
            failpoint: Failpoint::default(),
        })
    }
}

/// The state's place alone: what commands that need no chain read.
pub(crate) fn data_dir(source: &impl Source) -> Result<PathBuf, ConfigError> {
    required(source, "DATA_DIR")
}

/// Reads how to log.
pub(crate) fn read_log(source: &impl Source) -> Result<LogConfig, ConfigError> {
    let filter = or_default(source, "RUST_LOG", "info,blueprint=warn".to_owned())?;
    Ok(LogConfig { format: or_default(source, "LOG_FORMAT", Format::Text)?, filter })
}

/// Reads which blueprint on which chain.
pub(crate) fn read_chain(source: &impl Source) -> Result<ChainConfig, ConfigError> {
    Ok(ChainConfig {
        rpc_url: or_default(source, "HTTP_RPC_URL", default_url())?,
        ws_url: optional(source, "WS_RPC_URL")?,
        chain_id: optional(source, "CHAIN_ID")?,
        core: required(source, "TANGLE_CONTRACT")?,
        blueprint: required(source, "BLUEPRINT_ID")?,
        service: optional(source, "SERVICE_ID")?,
        confirmations: optional(source, "CONFIRMATIONS")?,
        head_age_s_max: optional(source, "HEAD_AGE_MAX_SECONDS")?,
        fee_max: optional::<u64>(source, "FEE_CAP_GWEI")?.map(|gwei| u128::from(gwei) * WEI_PER_GWEI),
        jobs_concurrent: read_jobs_concurrent(source)?,
    })
}

fn read_jobs_concurrent(source: &impl Source) -> Result<usize, ConfigError> {
    const NAME: &str = "JOBS_CONCURRENT";
    let jobs = or_default(source, NAME, JOBS_CONCURRENT_DEFAULT)?;
    if (1..=JOBS_CONCURRENT_MAX).contains(&jobs) {
        return Ok(jobs);
    }
    Err(ConfigError::invalid(NAME, jobs.to_string(), format!("give 1 to {JOBS_CONCURRENT_MAX}")))
}

#[allow(clippy::expect_used)] // a literal
fn default_url() -> Url {
    "http://127.0.0.1:8545".parse().expect("a literal URL")
}

fn read_offer(source: &impl Source, listen: SocketAddr) -> Result<OfferConfig, ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let resources = Resources {
        cpu_cores: or_default(source, "CAPACITY_CPU_CORES", cores * 4)?,
        memory_mb: or_default(source, "CAPACITY_MEMORY_MB", 16 * 1024)?,
        disk_gb: or_default(source, "CAPACITY_DISK_GB", 500)?,
    };
    let sandboxes = or_default(source, "CAPACITY_SANDBOXES", 16)?;
    if sandboxes == 0 {
        return Err(ConfigError::invalid("CAPACITY_SANDBOXES", "0", "an operator holds at least one sandbox"));
    }
    let api_url = or_default(source, "API_URL", format!("http://{listen}"))?;
    if api_url.parse::<Url>().is_err() {
        return Err(ConfigError::invalid("API_URL", api_url, "not a URL"));
    }
    Ok(OfferConfig {
        capacity: Capacity {
            sandboxes,
            sandboxes_each_max: or_default(source, "CAPACITY_SANDBOXES_PER_CUSTOMER", sandboxes)?,
            resources,
            cpu_cores_each_max: cores,
        },
        price_per_hour: or_default(source, "PRICE_PER_HOUR_WEI", U256::from(10_u64.pow(15)))?,
        token_prices_per_hour: read_token_prices(source)?,
        quote_life_s: read_quote_life(source)?,
        api_url: api_url.trim_end_matches('/').to_owned(),
    })
}

fn read_api(source: &impl Source) -> Result<ApiConfig, ConfigError> {
    const CERTIFICATE: &str = "TLS_CERT_FILE";
    const KEY: &str = "TLS_KEY_FILE";
    let lone = |name: &str, other: &str| ConfigError::invalid(name, "", format!("it goes together with {other}"));
    let tls = match (optional::<PathBuf>(source, CERTIFICATE)?, optional::<PathBuf>(source, KEY)?) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err(lone(KEY, CERTIFICATE)),
        (None, Some(_)) => return Err(lone(CERTIFICATE, KEY)),
    };
    let net = |word: String| {
        let found = word.parse::<IpNet>().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from));
        found.ok_or_else(|| ConfigError::invalid("TRUSTED_PROXIES", word, "give addresses or networks, by commas"))
    };
    let origin = |word: String| {
        let is_origin = word.parse::<Url>().is_ok_and(|url| url.origin().ascii_serialization() == word);
        let header = HeaderValue::from_str(&word).ok().filter(|_| is_origin);
        header.ok_or_else(|| ConfigError::invalid("CORS_ORIGINS", word, "give origins such as https://app.example"))
    };
    Ok(ApiConfig {
        tls,
        trusted_proxies: words(source, "TRUSTED_PROXIES").into_iter().map(net).collect::<Result<_, _>>()?,
        cors_origins: words(source, "CORS_ORIGINS").into_iter().map(origin).collect::<Result<_, _>>()?,
        token_life_s: read_token_life(source)?,
    })
}

fn read_token_life(source: &impl Source) -> Result<u64, ConfigError> {
    const NAME: &str = "TOKEN_TTL_SECONDS";
    let life_s = or_default(source, NAME, TOKEN_LIFE_S_DEFAULT)?;
    if (TOKEN_LIFE_S_MIN..=TOKEN_LIFE_S_MAX).contains(&life_s) {
        return Ok(life_s);
    }
    let range = format!("a token is good for {TOKEN_LIFE_S_MIN} to {TOKEN_LIFE_S_MAX} seconds");
    Err(ConfigError::invalid(NAME, life_s.to_string(), range))
}

/// `TOKEN=AMOUNT`, by commas.
fn read_token_prices(source: &impl Source) -> Result<BTreeMap<Address, U256>, ConfigError> {
    const NAME: &str = "PRICE_PER_HOUR_TOKENS";
    let text: String = or_default(source, NAME, String::new())?;
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (token, amount) = pair.split_once('=')?;
        Some((token.trim().parse::<Address>().ok()?, U256::from_str_radix(amount.trim(), 10).ok()?))
    };
    let wrong = |pair: &str| ConfigError::invalid(NAME, pair, "give TOKEN=AMOUNT, an address and a whole number");
    pairs.map(|pair| read(pair).ok_or_else(|| wrong(pair))).collect()
}

fn read_quote_life(source: &impl Source) -> Result<u64, ConfigError> {
    const NAME: &str = "QUOTE_TTL_SECONDS";
    let life_s = or_default(source, NAME, QUOTE_LIFE_S_DEFAULT)?;
    if (QUOTE_LIFE_S_MIN..=QUOTE_LIFE_S_MAX).contains(&life_s) {
        return Ok(life_s);
    }
    let range = format!("a quote is good for {QUOTE_LIFE_S_MIN} to {QUOTE_LIFE_S_MAX} seconds");
    Err(ConfigError::invalid(NAME, life_s.to_string(), range))
}

fn read_engine(source: &impl Source) -> Result<EngineConfig, ConfigError> {
    let host: String = or_default(source, "DOCKER_HOST", "unix:///var/run/docker.sock".to_owned())?;
    if !host.starts_with("unix://") {
        return Err(ConfigError::invalid("DOCKER_HOST", host, "the engine must be on this host: give unix:///path"));
    }
    let default = or_default(source, "SANDBOX_IMAGE", "agent-sandbox-sidecar:dev".to_owned())?;
    let menu = Menu {
        images: Images { default, allowed: words(source, "SANDBOX_IMAGES_ALLOWED") },
        runtimes: words(source, "SANDBOX_RUNTIMES_ALLOWED"),
        idle_timeout_s_default: Some(or_default(source, "IDLE_TIMEOUT_SECONDS", 0)?).filter(|seconds| *seconds != 0),
        ssh: false,
        profiles: BTreeSet::new(),
    };
    Ok(EngineConfig {
        host,
        runtime: optional(source, "SANDBOX_RUNTIME")?,
        disk_quota: or_default(source, "DISK_QUOTA", DiskQuota::Loop)?,
        pool_size: read_pool_size(source)?,
        menu,
        settings: Vec::new(),
    })
}

fn read_pool_size(source: &impl Source) -> Result<usize, ConfigError> {
    const NAME: &str = "POOL_SIZE";
    let size = or_default(source, NAME, POOL_SIZE_DEFAULT)?;
    if size <= POOL_SIZE_MAX {
        return Ok(size);
    }
    Err(ConfigError::invalid(NAME, size.to_string(), format!("the pool holds at most {POOL_SIZE_MAX} containers")))
}

fn bridge_socket(source: &impl Source) -> Result<Option<PathBuf>, ConfigError> {
    // The SDK's own name for "there is no manager".
    if switch(source, "TEST_MODE")? { Ok(None) } else { optional(source, "BRIDGE_SOCKET_PATH") }
}

fn check_protocol(source: &impl Source) -> Result<(), ConfigError> {
    match source.get("PROTOCOL").as_deref() {
        None | Some("tangle" | "tangle-evm") => Ok(()),
        Some(other) => Err(ConfigError::invalid("PROTOCOL", other, "this node serves tangle")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
        let needed = [
            ("DATA_DIR", "/tmp/x"),
            ("BLUEPRINT_ID", "1"),
            ("TANGLE_CONTRACT", "0x0165878A594ca255338adfa4d48449f69242Eb8F"),
        ];
        let settings: HashMap<_, _> =
            needed.iter().chain(pairs).map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Config::read(&settings).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_need_three_settings() {
        let config = read(&[]).unwrap();
        assert_eq!(config.offer.api_url, "http://127.0.0.1:9944");
        assert_eq!(config.engine.menu.images.default, "agent-sandbox-sidecar:dev");
        assert_eq!(config.bridge_socket, None);
        assert_eq!(Config::read(&HashMap::new()).unwrap_err().to_string(), "TANGLE_CONTRACT is not set");
    }

    #[test]
    fn the_bridge_is_used_only_when_its_socket_is_given_and_not_in_test_mode() {
        assert!(read(&[("BRIDGE_SOCKET_PATH", "/b")]).unwrap().bridge_socket.is_some());
        assert!(read(&[("BRIDGE_SOCKET_PATH", "/b"), ("TEST_MODE", "true")]).unwrap().bridge_socket.is_none());
    }

    #[test]
    fn a_core_hour_may_have_a_price_in_tokens_too() {
        let token = "0x7bc06c482DEAd17c0e297aFbC32f6e63d3846650";
        let config =
            read(&[("PRICE_PER_HOUR_TOKENS", &format!("{token} = 250, ")), ("QUOTE_TTL_SECONDS", "15")]).unwrap();
        let prices = BTreeMap::from([(token.parse().unwrap(), U256::from(250))]);
        assert_eq!((config.offer.token_prices_per_hour, config.offer.quote_life_s), (prices, 15));
    }

    #[test]
    fn the_api_speaks_tls_believes_proxies_and_lets_pages_in_as_it_is_told() {
        let plain = read(&[]).unwrap().api;
        assert_eq!((plain.tls, plain.trusted_proxies.len(), plain.cors_origins.len()), (None, 0, 0));
        let told = read(&[
            ("TLS_CERT_FILE", "/cert.pem"),
            ("TLS_KEY_FILE", "/key.pem"),
            ("TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
            ("CORS_ORIGINS", "https://app.example,http://localhost:3000"),
            ("TOKEN_TTL_SECONDS", "60"),
        ]);
        let told = told.unwrap().api;
        assert_eq!(told.tls, Some(TlsFiles { certificate: "/cert.pem".into(), key: "/key.pem".into() }));
        assert_eq!((told.trusted_proxies.len(), told.cors_origins.len(), told.token_life_s), (2, 2, 60));
    }

    #[test]
    fn a_bad_value_ends_the_start() {
        for (name, text) in [
            ("TANGLE_CONTRACT", "0x12"),
            ("SERVICE_ID", "one"),
            ("API_LISTEN", "8080"),
            ("CAPACITY_SANDBOXES", "0"),
            ("PROTOCOL", "eigenlayer"),
            ("DOCKER_HOST", "tcp://1.2.3.4:2375"),
            ("API_URL", "not a url"),
            ("TEST_MODE", "maybe"),
            ("DISK_QUOTA", "xfs"),
            ("POOL_SIZE", "257"),
            ("TLS_KEY_FILE", "/key.pem"),
            ("TRUSTED_PROXIES", "10.0.0.0/33"),
            ("CORS_ORIGINS", "https://app.example/"),
            ("CORS_ORIGINS", "*"),
            ("TOKEN_TTL_SECONDS", "59"),
            ("TOKEN_TTL_SECONDS", "86401"),
            ("QUOTE_TTL_SECONDS", "14"),
            ("JOBS_CONCURRENT", "0"),
            ("JOBS_CONCURRENT", "1025"),
            ("FEE_CAP_GWEI", "1.5"),
            ("QUOTE_TTL_SECONDS", "3600"),
            ("PRICE_PER_HOUR_TOKENS", "0x12=1"),
            ("PRICE_PER_HOUR_TOKENS", "0x7bc06c482DEAd17c0e297aFbC32f6e63d3846650"),
        ] {
            let refused = read(&[(name, text)]).unwrap_err();
            let name = if name == "TLS_KEY_FILE" { "TLS_CERT_FILE" } else { name };
            assert!(refused.starts_with(&format!("{name}=")), "{refused}");
        }
    }
}
