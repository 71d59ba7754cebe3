import { useSearchParams } from "react-router";

import { taken } from "../../api/client";
import { useRead } from "../../api/read";
import { useScope } from "../../api/session";
import { Empty, Fault, PageHeader, Panel, Skeleton } from "../../ui/panel";
import { Diagram, STATES } from "./diagram";
import css from "./pipelines.module.css";
import { TablePanel } from "./table";

/** Tables that compute themselves. */
export default function Pipelines() {
  const { api } = useScope();
  const [params, setParams] = useSearchParams();
  const { data, error, refetch } = useRead({ queryKey: ["pipelines"], queryFn: () => taken(api.GET("/api/v1/pipelines")), refetchInterval: 5000 });
  const schema = params.get("schema");
  const table = params.get("table");
  return (
    <div className="stack">
      <PageHeader title="Pipelines" lead="Tables that compute themselves, from what they depend on." />
      {error ? (
        <Fault error={error} retry={() => void refetch()} />
      ) : !data ? (
        <Skeleton />
      ) : data.items.length === 0 ? (
        <Panel>
          <Empty title="No pipeline is shown here">
            Start the server with the module that declares your tables: <code>penstock up --pipeline my_lab.tables</code>
          </Empty>
        </Panel>
      ) : (
        data.items.map((pipeline) => (
          <div key={pipeline.schema_name} className="stack">
            <Panel
              title={pipeline.schema_name}
              actions={
                <span className={css.legend}>
                  {STATES.map(([name, label, colour]) => (
                    <span key={name}>
                      <i style={{ background: `var(${colour})` }} aria-hidden="true" />
                      {label}
                    </span>
                  ))}
                </span>
              }
            >
              <Diagram pipeline={pipeline} chosen={schema === pipeline.schema_name ? table : null} choose={(name) => setParams({ schema: pipeline.schema_name, table: name })} />
            </Panel>
            {schema === pipeline.schema_name && table !== null && <TablePanel schema={schema} table={table} key={table} />}
          </div>
        ))
      )}
    </div>
  );
}
