//! The server's configuration, as a file and as flags: what is taken is written and read again as the same.
#![no_main]

use diskside_server::config::{ExportSpec, HostSpec, ServeConfig, Settings, VolumeSpec, parse_address};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let flags = (text.parse::<ExportSpec>(), text.parse::<VolumeSpec>(), text.parse::<HostSpec>());
    if let (Ok(export), ..) = &flags {
        export.check().expect("a flag is checked when it is read");
    }
    // Names are asked for on the network.
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '[') && !text.contains(char::is_alphabetic) {
        let _ = parse_address(text);
    }
    if ["listen", "advertise", "\\"].iter().any(|word| text.contains(word)) {
        return;
    }
    let Ok(settings) = Settings::from_toml(text, "fuzz") else { return };
    let Ok(config) = ServeConfig::resolve(settings) else { return };
    let written = config.to_toml();
    let again = Settings::from_toml(&written, "written").and_then(ServeConfig::resolve);
    assert_eq!(again.as_ref().ok(), Some(&config), "{written}\n{again:?}");
});
