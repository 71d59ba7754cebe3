import type { Schemas } from "../../api/client";
import { Status } from "../../ui/badge";
import { Empty, Panel } from "../../ui/panel";
import { Block, Line, shortWorker, Span, Time } from "../../ui/text";
import css from "./job.module.css";

export function Attempts({ attempts }: { attempts: readonly Schemas["Attempt"][] }) {
  return (
    <Panel title="Attempts" flush>
      {attempts.length === 0 ? (
        <Empty title="Not run yet">Each run is recorded here, with its worker, exit code and error.</Empty>
      ) : (
        attempts.toReversed().map((each) => (
          <div key={each.id} className={css.attempt}>
            <div className="spread">
              <span className="row">
                <strong>{each.attempt_no}</strong>
                <Status of={each.status} />
                <span className="quiet">
                  <Line length={70}>{shortWorker(each.worker_id)}</Line>
                </span>
              </span>
              <span className="row quiet">
                {each.exit_code !== null && <span>exit {each.exit_code}</span>}
                <Span from={each.started_at} to={each.finished_at} />
                <Time at={each.started_at} />
              </span>
            </div>
            {each.error_text && <Block of={each.error_text} label={`Error of attempt ${each.attempt_no}`} />}
            {each.artifacts.length > 0 && <Block of={each.artifacts} label={`Artifacts of attempt ${each.attempt_no}`} />}
          </div>
        ))
      )}
    </Panel>
  );
}
