//! Addresses to listen on as users write them: `HOST[:PORT][,path=STATE]`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use diskside_nvme::controller::PathState;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::address::parse_address;

/// An address to listen on, which is one path to the volumes for hosts that have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenSpec {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// What hosts that came to it are told of the path.
    pub path: PathState,
}

impl ListenSpec {
    /// Gives those of `all` the state that the same address has in `new`; one that is not there keeps its own.
    pub(crate) fn renew(all: &mut [Self], new: &[Self]) {
        // An address with a free port may be there twice.
        let mut rest = new.to_vec();
        for one in all {
            if let Some(at) = rest.iter().position(|new| new.address == one.address) {
                one.path = rest.remove(at).path;
            }
        }
    }
}

impl From<SocketAddr> for ListenSpec {
    fn from(address: SocketAddr) -> Self {
        Self { address, path: PathState::default() }
    }
}

impl FromStr for ListenSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let address = parse_address(parts.next().unwrap_or_default())?;
        let mut spec = Self::from(address);
        for option in parts {
            let wrong =
                |what: &str| format!("`{text}`: {what}; write path=optimized, path=non-optimized or path=inaccessible");
            let Some(state) = option.strip_prefix("path=") else {
                return Err(wrong(&format!("`{option}` is not an option of an address")));
            };
            let known = PathState::ALL.into_iter().find(|known| known.to_string() == state);
            spec.path = known.ok_or_else(|| wrong(&format!("`{state}` is not a state of a path")))?;
        }
        Ok(spec)
    }
}

impl fmt::Display for ListenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            PathState::Optimized => write!(f, "{}", self.address),
            path => write!(f, "{},path={path}", self.address),
        }
    }
}

impl Serialize for ListenSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ListenSpec {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        String::deserialize(text)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_say_how_good_its_path_is() {
        for (text, address, path) in [
            ("127.0.0.1:4421", "127.0.0.1:4421", PathState::Optimized),
            ("[::1],path=non-optimized", "[::1]:4420,path=non-optimized", PathState::NonOptimized),
            ("localhost:7,path=inaccessible", "127.0.0.1:7,path=inaccessible", PathState::Inaccessible),
            ("127.0.0.1:1,path=optimized", "127.0.0.1:1", PathState::Optimized),
        ] {
            let spec: ListenSpec = text.parse().unwrap();
            assert_eq!((spec.to_string().as_str(), spec.path), (address, path));
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_address_and_the_remedy() {
        for (text, expected) in [
            (
                "127.0.0.1:1,path=fast",
                "`127.0.0.1:1,path=fast`: `fast` is not a state of a path; \
                 write path=optimized, path=non-optimized or path=inaccessible",
            ),
            (
                "127.0.0.1:1,inaccessible",
                "`127.0.0.1:1,inaccessible`: `inaccessible` is not an option of an address; \
                 write path=optimized, path=non-optimized or path=inaccessible",
            ),
            ("127.0.0.1:x,path=optimized", "`x` is not a port: a number from 0 to 65535"),
        ] {
            assert_eq!(text.parse::<ListenSpec>(), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_same_address_has_its_new_state_and_another_keeps_its_own() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<ListenSpec>>();
        let mut all = parse(&["[::1]:0", "[::1]:0", "[::1]:1,path=inaccessible", "[::1]:2,path=inaccessible"]);
        ListenSpec::renew(&mut all, &parse(&["[::1]:2", "[::1]:0", "[::1]:0,path=non-optimized", "[::1]:3"]));
        let expected = ["[::1]:0", "[::1]:0,path=non-optimized", "[::1]:1,path=inaccessible", "[::1]:2"];
        assert_eq!(all, parse(&expected));
    }
}
