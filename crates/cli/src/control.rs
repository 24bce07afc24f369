//! The control socket of a run.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use thalweg_api::{Address, Folders, Limits, Listeners, Server, Socket, Tls, TlsFiles};
use thalweg_chain::Plan;
use thalweg_control::Subject;
use thalweg_engine::Control;

use crate::args::ControlOptions;
use crate::errors::Failure;

/// The name of a run whose chain file has no name, such as a pipe.
const UNNAMED: &str = "run";

/// How a run is named where it is observed.
pub struct Title {
    /// The name of its socket, unless another one is requested.
    name: Address,
    /// Its chain file, or the command that stands for one.
    chain: String,
}

impl Title {
    /// Those of the run of a chain file.
    pub fn of_chain(path: &Path) -> Self {
        // Clients have other working folders.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { name: name_of(path), chain: absolute.display().to_string() }
    }

    /// Those of the command `name` without a chain file, as it was `typed`.
    pub fn of_command(name: &str, typed: String) -> Self {
        Self { name: Address::Name(name.to_owned()), chain: typed }
    }
}

/// What the server of a run listens on. No thread serves it yet.
pub struct Claimed {
    listeners: Listeners,
    address: Address,
    chain: String,
}

/// Claims what the server of the run of `plan` listens on, if one is requested or an input is live.
///
/// # Errors
/// When a requested one cannot start. One that is not requested is only missed, with a warning.
pub fn claim(
    options: &ControlOptions,
    title: Title,
    plan: &Plan,
) -> Result<Option<Claimed>, Failure> {
    let is_live = plan.inputs.iter().any(|input| input.blueprint.is_live());
    let is_requested = options.control.is_some();
    let tcp = tcp(options)?;
    let mut listeners = Listeners { unix: None, tcp };
    let address = options.control.clone().flatten();
    let address = address.unwrap_or(title.name);
    if !options.no_control && (is_requested || is_live) {
        match claim_socket(&address) {
            Ok(socket) => listeners.unix = Some(socket),
            Err(reason) if is_requested => {
                let remedy = "--control=NAME names this run, --no-control goes without";
                return Err(Failure::Run(format!("control socket: {reason}; {remedy}")));
            }
            Err(reason) => {
                log::warn!("no control socket: {reason}; expected --control=NAME or --no-control");
            }
        }
    }
    if listeners.unix.is_none() && listeners.tcp.is_none() {
        return Ok(None);
    }
    if let Some(socket) = &listeners.unix {
        log::info!("control socket: {}", socket.path().display());
    }
    Ok(Some(Claimed { listeners, address, chain: title.chain }))
}

impl Claimed {
    /// The socket.
    pub fn socket(&self) -> Option<&Socket> {
        self.listeners.unix.as_ref()
    }

    /// Starts the server of the run of `plan` on `workers` threads. It ends when it is dropped.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn serve(
        self,
        plan: &Plan,
        workers: usize,
        control: Arc<Control>,
    ) -> Result<Server, Failure> {
        let name = match &self.address {
            Address::Name(name) => name.clone(),
            Address::Path(path) => path.display().to_string(),
        };
        let subject = Subject::new(name, self.chain, plan, workers, control);
        let server = thalweg_control::serve(subject, self.listeners, Limits::default());
        server.map_err(|e| Failure::Run(format!("control: {e}")))
    }
}

fn claim_socket(address: &Address) -> Result<Socket, String> {
    let path = Folders::from_environment().path_to_create(address)?;
    Socket::claim(&path).map_err(|e| e.to_string())
}

/// The name of a run: that of its chain file, or of its folder if every chain file is called so.
fn name_of(chain: &Path) -> Address {
    let stem = chain.file_stem().unwrap_or_default();
    // A path without a folder is one in the current folder.
    let folder = || chain.canonicalize().ok()?.parent()?.file_name().map(ToOwned::to_owned);
    let name = if stem == "chain" { folder() } else { None };
    let name = name.unwrap_or_else(|| stem.to_owned());
    Address::like(&name.to_string_lossy()).unwrap_or_else(|| Address::Name(UNNAMED.into()))
}

/// The listener for TCP, if one is requested.
fn tcp(options: &ControlOptions) -> Result<Option<(TcpListener, Tls)>, Failure> {
    let ControlOptions { control_tcp, control_cert, control_key, control_clients, .. } = options;
    let (Some(address), Some(certificates), Some(key), Some(clients)) =
        (control_tcp, control_cert, control_key, control_clients)
    else {
        return Ok(None);
    };
    let [certificates, key, clients] = [certificates, key, clients].map(Clone::clone);
    let failed = |e: String| Failure::Run(format!("--control-tcp: {e}"));
    let tls = Tls::load(&TlsFiles { certificates, key, clients });
    let tls = tls.map_err(|e| failed(e.to_string()))?;
    let listener = TcpListener::bind(address).map_err(|e| failed(format!("{address}: {e}")))?;
    let address = listener.local_addr().unwrap_or(*address);
    log::info!("control over TLS: {address}");
    Ok(Some((listener, tls)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_name_of_its_chain_file_or_folder() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("my site");
        std::fs::create_dir(&site).unwrap();
        std::fs::write(site.join("chain.toml"), "").unwrap();
        let name = |path: &Path| name_of(path).to_string();
        assert_eq!(name(&site.join("chain.toml")), "my-site");
        assert_eq!(name(&site.join("edge.toml")), "edge");
        assert_eq!(name(Path::new("none/chain.toml")), "chain");
        assert_eq!(name(Path::new("/")), "run");
    }
}
