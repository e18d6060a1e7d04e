// Program of the Node.js client (npm's pulsar-client, Apache's own, the C++ library inside) in the client matrix.
//
// NODE_PATH=BUILT/node_modules node tests/clients/node/main.js SERVICE_URL PREFIX KEYS [SCENARIO ...], where BUILT is
// the directory that `build.py` made. The package would download its compiled part from outside of npm's registry;
// instead it is compiled here, from the package's own sources, and linked with the library that PyPI's wheel of
// pulsar-client carries.
'use strict';

const { main } = require('./harness');

const scenarios = {
  ...require('./publishing'),
  ...require('./producing'),
  ...require('./consuming'),
  ...require('./acknowledging'),
  ...require('./schemas'),
  ...require('./disruptive'),
};
main(scenarios, process.argv.slice(2));
