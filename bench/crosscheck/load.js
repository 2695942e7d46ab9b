// A load of k6: a closed loop of CLIENTS that send REQUESTS, or an open one of RATE requests per second for SECONDS. It writes its
// figures to the file OUTPUT.
import http from 'k6/http';

const clients = Number(__ENV.CLIENTS);
const closed = { executor: 'shared-iterations', vus: clients, iterations: Number(__ENV.REQUESTS), maxDuration: '5m' };
const open = {
    executor: 'constant-arrival-rate',
    rate: Number(__ENV.RATE),
    timeUnit: '1s',
    duration: `${__ENV.SECONDS}s`,
    preAllocatedVUs: clients,
};

export const options = {
    insecureSkipTLSVerify: true,
    discardResponseBodies: true,
    summaryTrendStats: ['avg', 'med', 'p(90)', 'p(99)', 'max', 'count'],
    scenarios: { load: __ENV.RATE ? open : closed },
};

export default function () {
    http.get(__ENV.URL);
}

export function handleSummary(data) {
    return { [__ENV.OUTPUT]: JSON.stringify(data.metrics) };
}
