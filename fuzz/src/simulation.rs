//! The simulator's configuration, and settings on top of it, separated by a zero byte.

use thalweg_sim::config::Config;

/// Reads a configuration, writes it, and reads it again.
pub fn simulation(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (text, settings) = text.split_once('\0').unwrap_or((text, ""));
    let settings: Vec<&str> = settings.lines().collect();
    match Config::with_settings(text, &settings) {
        Ok(config) => {
            let again = Config::from_toml(&config.to_toml()).expect("what was written can be read");
            assert_eq!(again, config);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}
