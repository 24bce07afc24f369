//! Signals that control a run.

use std::io;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use thalweg_engine::Control;

/// Lets a write past the limit of file sizes fail, as one to a full disk does, rather than kill the
/// program.
pub fn survive_file_limit() {
    // The flag is not used; without a handler the signal kills.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Lets signals steer `control` from now on: SIGINT and SIGTERM stop the run (a
/// second one ends the program at once), SIGHUP reloads, SIGUSR1 exports.
///
/// # Errors
/// When the system refuses to install the handlers.
pub fn steer(control: Arc<Control>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => control.request_reload(),
                SIGUSR1 => control.request_export(),
                _ if stopping => {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                _ => {
                    stopping = true;
                    control.stop();
                }
            }
        }
    })?;
    Ok(())
}
