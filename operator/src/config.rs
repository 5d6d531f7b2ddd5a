//! The operator's configuration, read once. A bad value ends the start with the name of the setting and the reason.
//!
//! The names of the Blueprint SDK (`HTTP_RPC_URL`, `KEYSTORE_URI`, `BLUEPRINT_ID`, …) are used where it has one, so that
//! the same environment starts the node alone and under the Blueprint Manager.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use alloy::primitives::{Address, U256};
use alloy::transports::http::reqwest::Url;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::request::{Images, Resources};
use sandbox_process::logging::Format;
use sandbox_process::source::{ConfigError, Source, optional, or_default, required, switch};

use crate::limits::{
    JOBS_CONCURRENT_DEFAULT, JOBS_CONCURRENT_MAX, QUOTE_LIFE_S_DEFAULT, QUOTE_LIFE_S_MAX, QUOTE_LIFE_S_MIN,
};

const WEI_PER_GWEI: u128 = 1_000_000_000;

/// Everything that can be set.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) chain: ChainConfig,
    pub(crate) keystore_uri: String,
    /// State that must survive.
    pub(crate) data_dir: PathBuf,
    /// Sockets of running sandboxes.
    pub(crate) run_dir: PathBuf,
    pub(crate) api_listen: SocketAddr,
    pub(crate) offer: OfferConfig,
    pub(crate) engine: EngineConfig,
    /// Register, serve nothing: what the Blueprint Manager asks of a blueprint before there is a service.
    pub(crate) register_only: bool,
    /// The Blueprint Manager's socket; without it the node runs alone.
    pub(crate) bridge_socket: Option<PathBuf>,
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
    /// Least wei for a create at which services are approved.
    pub(crate) create_price_min: U256,
    /// Where customers reach the API.
    pub(crate) api_url: String,
}

/// The container engine.
#[derive(Debug, Clone)]
pub(crate) struct EngineConfig {
    pub(crate) host: String,
    /// Another runtime than the engine's default.
    pub(crate) runtime: Option<String>,
    pub(crate) images: Images,
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
        Ok(Self {
            chain: read_chain(source)?,
            keystore_uri: or_default(source, "KEYSTORE_URI", "./keystore".to_owned())?,
            data_dir: required(source, "DATA_DIR")?,
            run_dir: or_default(source, "RUN_DIR", PathBuf::from("/run/agent-sandbox"))?,
            api_listen,
            offer: read_offer(source, api_listen)?,
            engine: read_engine(source)?,
            register_only: switch(source, "REGISTRATION_MODE_ON")?,
            bridge_socket: bridge_socket(source)?,
        })
    }
}

/// The key's place alone: what commands besides `run` need.
pub(crate) fn keystore_uri(source: &impl Source) -> Result<String, ConfigError> {
    or_default(source, "KEYSTORE_URI", "./keystore".to_owned())
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
        capacity: Capacity { sandboxes, resources, cpu_cores_each_max: cores },
        price_per_hour: or_default(source, "PRICE_PER_HOUR_WEI", U256::from(10_u64.pow(15)))?,
        token_prices_per_hour: read_token_prices(source)?,
        quote_life_s: read_quote_life(source)?,
        create_price_min: or_default(source, "CREATE_PRICE_MIN_WEI", U256::ZERO)?,
        api_url: api_url.trim_end_matches('/').to_owned(),
    })
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
    let allowed: String = or_default(source, "SANDBOX_IMAGES_ALLOWED", String::new())?;
    let allowed = allowed.split(',').map(str::trim).filter(|image| !image.is_empty()).map(str::to_owned).collect();
    let default = or_default(source, "SANDBOX_IMAGE", "agent-sandbox-sidecar:dev".to_owned())?;
    Ok(EngineConfig { host, runtime: optional(source, "SANDBOX_RUNTIME")?, images: Images { default, allowed } })
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
        assert_eq!(config.engine.images.default, "agent-sandbox-sidecar:dev");
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
            ("QUOTE_TTL_SECONDS", "14"),
            ("JOBS_CONCURRENT", "0"),
            ("JOBS_CONCURRENT", "1025"),
            ("FEE_CAP_GWEI", "1.5"),
            ("QUOTE_TTL_SECONDS", "3600"),
            ("PRICE_PER_HOUR_TOKENS", "0x12=1"),
            ("PRICE_PER_HOUR_TOKENS", "0x7bc06c482DEAd17c0e297aFbC32f6e63d3846650"),
        ] {
            let refused = read(&[(name, text)]).unwrap_err();
            assert!(refused.starts_with(&format!("{name}=")), "{refused}");
        }
    }
}
